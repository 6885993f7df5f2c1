"""A fixed output gives the same messages for ever: deltas, their order, the end.

Recorded in ``traces/``; ``ASR_CORE_RECORD_TRACES=1 pytest tests/stream/test_traces.py`` writes them anew, which belongs
in a commit that does nothing else and says why.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asr_core.formats import as_dict
from asr_core.testing import tones
from asr_core.types import Samples, Transcript, TranscriptionRequest

TRACES = Path(__file__).parent / "traces"
RECORDING = "ASR_CORE_RECORD_TRACES" in os.environ
FAKE = {
    "plain": ("plain", " one two  three "),
    "split-characters": ("plain", "Grüße 你好 🙂!"),
    "speakers": ("speakers", "hi there/you too/and 我"),
    "early-end": ("early_end", "one two three four five"),
    "loop": ("loop", "ha! ha! and more"),
}
END = 256 + 65536 + 105
SCRIPT = [*b"one", END + 10, *" zwölf ".encode(), END + 20, *"🙂 ".encode()[:-2]]
"""Tokens of tests/stream/plugins/scripted.py: two segments, and an end inside a character."""


def messages(events: list[Any]) -> list[Any]:
    *deltas, transcript = events
    assert isinstance(transcript, Transcript)
    return [*({"delta": delta.text} for delta in deltas), {"done": as_dict(transcript)}]


def compare(name: str, events: list[Any]) -> None:
    path = TRACES / f"{name}.json"
    if RECORDING:
        path.write_text(json.dumps(messages(events), ensure_ascii=False, indent=1) + "\n")
    assert messages(events) == json.loads(path.read_text())


@pytest.mark.parametrize("name", FAKE)
def test_the_fake_model(fake: Any, streamed: Any, name: str) -> None:
    behaviour, text = FAKE[name]
    sound: Samples = tones.speak(text)
    compare(name, streamed(fake.served, sound, TranscriptionRequest(options={"behaviour": behaviour})))


@pytest.mark.parametrize("name", ["token", "segment", "clip", "flush"])
def test_every_unit_and_a_model_that_flushes_at_the_end(opened: Any, streamed: Any, name: str) -> None:
    request = TranscriptionRequest(options={"script": json.dumps([[SCRIPT]])})
    compare(name, streamed(opened(f"scripted-{name}").served, np.full(16_000, 0.5, np.float32), request))


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json")), ids=lambda path: path.stem)
def test_a_trace_adds_up(path: Path) -> None:
    *deltas, done = json.loads(path.read_text())
    assert "".join(delta["delta"] for delta in deltas) == done["done"]["text"] != ""
