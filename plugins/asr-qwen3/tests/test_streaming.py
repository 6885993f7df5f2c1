"""What a stream says to fixed tokens: the whole pipeline, with an engine that says what it is told to.

``ASR_CORE_RECORD_TRACES=1 pytest plugins/asr-qwen3/tests/test_streaming.py`` records ``traces/`` anew, which belongs
in a commit that does nothing else and says why.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from transformers.convert_slow_tokenizer import bytes_to_unicode

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.engines.protocol import Finished, GeneratedToken, GenerationRequest, needed_features
from asr_core.formats import as_dict
from asr_core.pipeline import stream
from asr_core.types import Samples, Transcript, TranscriptionRequest, Waveform
from asr_qwen3.frontend import Frontend

TRACES = Path(__file__).parent / "traces"
RECORDING = "ASR_CORE_RECORD_TRACES" in os.environ

Said = tuple[str | bytes, ...]

MARKER, END = "<asr_text>", "<|im_end|>"
ENGLISH = ("language English", MARKER)
LONG = (
    "He was not an ill-disposed young man, unless to be rather cold-hearted and rather selfish is to be ill-disposed."
)
REPEATED = " and so on" * 14
PROMPTED = TranscriptionRequest(prompt="Norland")

SCRIPTS: dict[str, tuple[list[Said], TranscriptionRequest]] = {
    "detected": ([(*ENGLISH, LONG, END)], TranscriptionRequest()),
    "forced": ([(LONG, END)], TranscriptionRequest(language="en")),
    "split-characters": ([("language Chinese", MARKER, "语音转写🙂成中文。", END)], TranscriptionRequest()),
    "damaged": ([(*ENGLISH, b"so \xe8\xaf he \xff\xff\xff\xff\xff\xff said \xf0\x9f", END)], TranscriptionRequest()),
    "no-marker": ([("language is what people speak", END)], TranscriptionRequest()),
    "unfinished-preamble": ([("language Eng", END)], TranscriptionRequest()),
    "unknown-language": ([("language Klingon", MARKER, "nuqneH", END)], TranscriptionRequest()),
    "nobody": ([("language None", MARKER, END)], TranscriptionRequest()),
    "special-tokens": (
        [(*ENGLISH, "one", "<|audio_pad|>", MARKER, " two", "<tool_call>", "<|im_start|>", END)],
        TranscriptionRequest(),
    ),
    "cut-off": ([(*ENGLISH, *[f"{LONG} "] * 4)], TranscriptionRequest(temperature=0.5)),
    "loop": ([(*ENGLISH, "No", REPEATED, END), (" he said.", END)], PROMPTED),
    "late-loop": ([(*ENGLISH, LONG, REPEATED, END), (" That was that.", END)], PROMPTED),
    "stubborn-loop": ([(*ENGLISH, "!" * 100, END), *[("!" * 100, END)] * 4], TranscriptionRequest()),
}
"""What the model says in each attempt: every byte is a token, and so is every name of one."""


@define(eq=False)
class Script:
    """An engine that says what is written, one attempt after the other, until the budget ends."""

    attempts: list[list[int]]
    requests: list[GenerationRequest] = field(factory=list)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GeneratedToken | Finished, None]:
        self.requests.append(request)
        for token in self.attempts.pop(0)[: request.budget]:
            yield GeneratedToken(token, -0.25)
            if token in request.stop:
                yield Finished("stop")
                return
        yield Finished("length")

    def abort(self, request_id: str) -> None: ...


def tokens(frontend: Frontend, said: Said) -> list[int]:
    """Bytes, of which no training of a tokenizer makes anything else, and added tokens by name."""
    special, letters = frontend.template.tokenizer.special, bytes_to_unicode()
    ids: list[int] = []
    for part in said:
        data = part.encode() if isinstance(part, str) else part
        ids += [special[part]] if part in special else [frontend.tokenizer.token_to_id(letters[byte]) for byte in data]
    return ids


def run(model: Transcriber, samples: Samples, script: Script, request: TranscriptionRequest) -> list[Any]:
    """Deltas, then the transcript."""
    # Most scripts are far too short for what is read there.
    policy = evolve(model.served.chunk_policy, least_rate=0.0)
    served = evolve(model.served, engine=script, chunk_policy=policy)

    async def collect() -> list[Any]:
        async def read(rate: int) -> Waveform:
            return audio.from_array(samples, rate, rate)

        return [event async for event in stream(served, read, request)]

    *deltas, transcript = asyncio.run(collect())
    assert isinstance(transcript, Transcript)
    assert "".join(delta.text for delta in deltas) == transcript.text
    return [*({"delta": delta.text} for delta in deltas), {"done": as_dict(transcript)}]


@pytest.fixture
def play(model: Transcriber, frontend: Frontend, reading: Samples) -> Any:
    """Play a script by name: messages, and what the engine was asked for."""

    def played(name: str) -> tuple[list[Any], list[GenerationRequest]]:
        attempts, request = SCRIPTS[name]
        script = Script([tokens(frontend, said) for said in attempts])
        return run(model, reading, script, request), script.requests

    return played


@pytest.mark.parametrize("name", SCRIPTS)
def test_messages_are_as_recorded(play: Any, name: str) -> None:
    said, _ = play(name)
    path = TRACES / f"{name}.json"
    if RECORDING:
        path.write_text(json.dumps(said, ensure_ascii=False, indent=1) + "\n")
    assert said == json.loads(path.read_text())


def test_the_text_streams_in_runs(play: Any) -> None:
    (*deltas, done), _ = play("detected")
    # Runs of 32 tokens, of which 16 and the marker are the preamble's; what is left comes at the end.
    assert [len(delta["delta"]) for delta in deltas] == [15, 32, 32, 32, 1]
    assert done["done"]["text"] == LONG
    assert done["done"]["language"] == "en"


def test_what_was_sent_before_a_loop_stands(play: Any, frontend: Frontend) -> None:
    (*deltas, done), (first, second) = play("late-loop")
    assert done["done"]["text"].startswith(LONG)
    assert done["done"]["text"].endswith("That was that.")
    assert second.given[: len(ENGLISH[0]) + 1 + len(LONG)] == tuple(tokens(frontend, (*ENGLISH, LONG)))
    assert len(done["done"]["x_asr"]["guards"]) == 1
    assert len(deltas) > 4
    words = [sum(len(part) for part in request.prompt if isinstance(part, tuple)) for request in (first, second)]
    assert words[0] > words[1]  # without the prompt


def test_it_asks_of_the_engine_what_it_declares(play: Any, model: Transcriber) -> None:
    _, (request,) = play("forced")
    assert needed_features(request) == model.served.capabilities.requires["transcribe"]


def test_attempts_grow_warmer(play: Any) -> None:
    (*_, done), requests = play("stubborn-loop")
    assert [request.sampling.temperature for request in requests] == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert len({request.sampling.seed for request in requests}) == 5
    assert done["done"]["text"].startswith("!!!!!")
