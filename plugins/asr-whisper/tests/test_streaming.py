"""What a stream says: the review sees a window whole, so its text comes at once.

``ASR_CORE_RECORD_TRACES=1 pytest plugins/asr-whisper/tests/test_streaming.py`` records ``traces/`` anew, which belongs
in a commit that does nothing else and says why.
"""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.formats import as_dict
from asr_core.pipeline import stream
from asr_core.types import Transcript, TranscriptionRequest

TRACES = Path(__file__).parent / "traces"
RECORDING = "ASR_CORE_RECORD_TRACES" in os.environ
CLIP = Path(__file__).parents[3] / "tests" / "data" / "librivox" / "0880.wav"
REQUESTS = {
    "text": TranscriptionRequest(),
    "segments": TranscriptionRequest(times=frozenset({"segment"})),
}


def messages(transcriber: Transcriber, path: Path, request: TranscriptionRequest) -> list[Any]:
    async def collect() -> list[Any]:
        return [event async for event in stream(transcriber.served, partial(audio.read, path), request)]

    *deltas, transcript = asyncio.run(collect())
    assert isinstance(transcript, Transcript)
    return [*({"delta": delta.text} for delta in deltas), {"done": as_dict(transcript)}]


@pytest.mark.parametrize("name", ["text", "segments"])
def test_messages_are_as_recorded(base: Transcriber, name: str) -> None:
    said = messages(base, CLIP, REQUESTS[name])
    path = TRACES / f"{CLIP.stem}-{name}.json"
    if RECORDING:
        path.write_text(json.dumps(said, ensure_ascii=False, indent=1) + "\n")
    assert said == json.loads(path.read_text())


def test_a_window_is_one_delta(base: Transcriber) -> None:
    *deltas, done = messages(base, CLIP, REQUESTS["text"])
    assert [delta["delta"] for delta in deltas] == [done["done"]["text"]]
    assert base.transcribe(CLIP).text == done["done"]["text"]
