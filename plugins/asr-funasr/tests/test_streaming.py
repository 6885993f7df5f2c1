"""What a stream says for tokens that are written down, so that no weight decides.

``ASR_CORE_RECORD_TRACES=1 pytest plugins/asr-funasr/tests/test_streaming.py`` records ``traces/`` anew, which belongs
in a commit that does nothing else and says why.
"""

# ruff: noqa: RUF001 - Chinese has its own punctuation
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
from asr_core.pipeline import stream
from asr_core.runtime.stream import ClipText, CommitRule, Deltas, TextDelta
from asr_core.types import Transcript, TranscriptionRequest
from asr_funasr.frontend import Frontend

from .conftest import LIBRIVOX

TRACES = Path(__file__).parent / "traces"
RECORDING = "ASR_CORE_RECORD_TRACES" in os.environ
SCRIPTS = {
    "plain": [["the quick brown fox", " jumps."]],
    "chinese": [["语音转写成中文，", "鬱蒼とした森。"]],
    "emoji": [["fox ", "🦊", "🏳️‍🌈", " dog"]],
    "white-space": [["  \n", "the", "  ", "dog", " \n"]],
    "control": [["<think>", "", "</think>", "语", "<|object_ref_end|>", "音", "<|im_start|>", "!"]],
    "damaged": [["the ", b"\xef", " fox ", b"\xef\xbf", b"\xf0\xbf", "over", b"\xff"]],
    "cut": [["森", b"\xef\xbf"]],
    "lone-lead-bytes": [["the", b"\xef" * 9, "语 fox"]],
    "nothing": [[]],
    "two-clips": [["the quick", " brown "], ["fox."]],
    "two-clips-chinese": [["语音。"], ["转写。"]],
}
"""Clips of strings, which are encoded, and of bytes, which become a token each."""


def ids(frontend: Frontend, script: list[str | bytes]) -> list[int]:
    tokens: list[int] = []
    for part in script:
        if isinstance(part, bytes):
            # Byte-level vocabularies write these bytes as the letters that Latin-1 has for them.
            assert all(byte >= 0xAE for byte in part)
            tokens += [frontend.tokenizer.token_to_id(letter) for letter in part.decode("latin-1")]
        elif part in frontend.prompts.special:
            tokens.append(frontend.prompts.special[part])
        else:
            tokens += frontend.prompts.encode_plain(part)
    return tokens


def said(transcriber: Transcriber, clips: list[list[int]]) -> list[str]:
    """The deltas of a request whose clips have these tokens."""
    served, sent = transcriber.served, list[str]()
    rule = CommitRule.of(served.hooks, served.model)

    def note(delta: TextDelta) -> None:
        sent.append(delta.text)

    deltas = Deltas(note)
    for clip in clips:
        text = ClipText(partial(served.hooks.decode_tokens, served.model), 1000, deltas.extend)
        text.begin(())
        for token in clip:
            text.take(token, -0.5)
            if rule.is_due(text):
                text.commit()
        text.close("stop")
        text.commit()
        deltas.end_clip()
    return sent


@pytest.mark.parametrize("name", SCRIPTS)
def test_messages_are_as_recorded(transcriber: Transcriber, frontend: Frontend, name: str) -> None:
    clips = [ids(frontend, script) for script in SCRIPTS[name]]
    trace = {"tokens": clips, "deltas": said(transcriber, clips)}
    path = TRACES / f"{name}.json"
    if RECORDING:
        path.write_text(json.dumps(trace, ensure_ascii=False) + "\n", encoding="utf-8")
    assert trace == json.loads(path.read_text(encoding="utf-8"))


def test_a_stream_adds_up_to_the_transcript(transcriber: Transcriber) -> None:
    path = LIBRIVOX / "0880.wav"

    async def collect() -> list[Any]:
        request = TranscriptionRequest(language="en", keywords=("fox",))
        return [event async for event in stream(transcriber.served, partial(audio.read, path), request)]

    *deltas, transcript = asyncio.run(collect())
    assert isinstance(transcript, Transcript)
    assert len(deltas) > 5
    assert "".join(delta.text for delta in deltas) == transcript.text
    assert transcriber.transcribe(path, language="en", keywords=["fox"]).text == transcript.text
