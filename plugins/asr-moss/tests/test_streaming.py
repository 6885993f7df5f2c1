"""What a stream says: a segment once its end is said, and what has no end when the clip has one.

``ASR_CORE_RECORD_TRACES=1 pytest plugins/asr-moss/tests/test_streaming.py`` records ``traces/`` anew, which belongs in
a commit that does nothing else and says why.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.longform import join_texts
from asr_core.pipeline import stream
from asr_core.runtime.stream import ClipText, CommitRule, Deltas
from asr_core.types import Samples, Tokens, Transcript, TranscriptionRequest

from .conftest import ANSWER, DIALOGUE, QUESTION, RATE
from .test_decoding import bytewise

TRACES = Path(__file__).parent / "traces"
RECORDING = "ASR_CORE_RECORD_TRACES" in os.environ
SCRIPTS = {
    "dialogue": DIALOGUE,
    "colons": "[00:00:00.50][S01]one, two[0:02.25]\n[00:02.50][S02]three[0:03.00]",
    "languages": "[0.10][S01]看见了[1.00][1.00][S02]한국어[2.00][2.00][S03]café 🙂[3.00][3.00][S01]ไทย[4.00]",
    "no-ends": "[0.10][S01]one[1.00][S02]two[2.00][S01]three",
    "no-starts": "[S01]one[1.00][S02]two[2.00]three[3.00]",
    "no-speakers": "[0.10]one[1.00][1.50]two[2.00]",
    "no-grammar": ANSWER,
    "brackets": "[0.10][S01][laughter] a[0] and [1[2.00][2.00][S02][[x][3.00]",
    "backwards": "[3.00][S01]one[2.00][1.00][S02]two[99:00:00]",
    "cut-short": "[0.10][S01]one[1.00][1.50][S02]two[2.",
    "nothing": "[0.10][S01][1.00] \n",
}


def say(transcriber: Transcriber, tokens: Tokens) -> list[Any]:
    """Deltas and segments of a clip of 6 s for which the model says ``tokens``."""
    hooks, model = transcriber.served.hooks, transcriber.served.model
    said: list[Any] = []
    deltas, commit = Deltas(lambda delta: said.append({"delta": delta.text})), CommitRule.of(hooks, model)
    text = ClipText(lambda *arguments: hooks.decode_tokens(model, *arguments), 6000, deltas.extend)
    text.begin(())
    for token in tokens:
        text.take(token, -0.5)
        if commit.is_due(text):
            text.commit()
    text.close("stop")
    text.commit()
    folded = text.folded()
    segments = [[one.start_ms, one.end_ms, one.speaker, one.text] for one in folded.segments]
    return [*said, {"text": folded.text, "segments": segments}]


@pytest.mark.parametrize("name", SCRIPTS)
def test_messages_are_as_recorded(tiny: Transcriber, name: str) -> None:
    """However the text is cut into tokens: bytes split every character, words hold the end of one mark and the next."""
    frontend = tiny.served.model.frontend
    bytes_said = say(tiny, bytewise(frontend, SCRIPTS[name]))
    words_said = say(tiny, frontend.prompts.encode_plain(SCRIPTS[name]))
    path = TRACES / f"{name}.json"
    if RECORDING:
        path.write_text(json.dumps(bytes_said, ensure_ascii=False, indent=1) + "\n")
    recorded = json.loads(path.read_text())
    assert bytes_said == recorded
    assert words_said[-1] == recorded[-1]
    for said in (bytes_said, words_said):
        assert "".join(one["delta"] for one in said[:-1]) == said[-1]["text"]


def test_a_stream_says_whole_segments(taught: Transcriber, reading: Samples) -> None:
    async def read(rate: int) -> Any:
        return audio.from_array(reading[: 6 * RATE], RATE, rate)

    async def collect(request: TranscriptionRequest) -> list[Any]:
        return [event async for event in stream(taught.served, read, request)]

    *deltas, done = asyncio.run(collect(TranscriptionRequest()))
    assert [delta.text for delta in deltas] == ["The quick brown fox.", " Nobody heard <it> & left.", "看[笑]到了"]
    assert isinstance(done, Transcript)
    assert join_texts(segment.text for segment in done.segments) == done.text
    *deltas, done = asyncio.run(collect(TranscriptionRequest(prompt=QUESTION)))
    assert [delta.text for delta in deltas] == [ANSWER] == [done.text]
