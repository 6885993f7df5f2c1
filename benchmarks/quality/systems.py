"""Who is measured: asr-core in this process and over HTTP, faster-whisper in both of its modes."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import soundfile
from attrs import field, frozen
from faster_whisper import BatchedInferencePipeline, WhisperModel

from asr_core.api import Transcriber
from asr_core.loading import EngineOptions
from asr_core.plugins import Plugins
from asr_core.testing.server import TRANSCRIPTIONS, Server
from asr_core.types import Transcript

from .. import ctranslate2
from .corpus import Sound
from .voice import RATE

MODEL = "whisper-base"
DTYPE = "float32"
"""Of faster-whisper; asr-core computes in what it chooses itself."""

BEAM_SIZE = 10
"""Of the asr-core that is compared: it takes less time than faster-whisper with its own 5."""

COMPARED = f"beam_size {BEAM_SIZE}"
"""The policy that is."""

BATCH = 8
"""Windows that faster-whisper's batched mode decodes at once."""


@frozen
class Part:
    """A stretch of the audio in seconds and what became of it, as the ledger has it."""

    start: float
    end: float
    state: str
    note: str = ""


@frozen
class Heard:
    """What a system made of one sound.

    ``seconds`` is how long it took, ``first`` until the first text where that is known. ``coverage`` is the ledger, and
    ``guards`` are what stepped in (kind, start and end in seconds); both empty for systems that keep none.
    """

    text: str
    seconds: float
    first: float | None = None
    coverage: Sequence[Part] = ()
    guards: Sequence[tuple[str, float, float]] = ()

    @property
    def cuts(self) -> list[float]:
        """Where one part ends and the next begins, in seconds."""
        return [part.start for part in self.coverage if part.end > part.start][1:]

    def reports(self, start: float, end: float) -> bool:
        """Whether the ledger says of any of this time that something else than plain decoding happened."""
        marked = [(part.start, part.end) for part in self.coverage if part.state != "decoded" or part.note]
        marked += [(first, last) for _, first, last in self.guards]
        return any(first <= end and last >= start for first, last in marked)


@frozen(eq=False)
class System:
    """Hears one sound at a time or several, from as many threads. ``policy`` says how it cuts."""

    name: str
    policy: str
    hear: Callable[[Sound], Heard] = field(repr=False)


@contextmanager
def library(model: str = MODEL, beam_size: int = BEAM_SIZE, **chunk: Any) -> Iterator[System]:
    """asr-core in this process, greedy with a ``beam_size`` of 1; ``chunk`` are fields of its policy."""
    options = EngineOptions(device="cpu", chunk=chunk)
    with Transcriber(Plugins.discover(), model, options) as transcriber:

        def hear(sound: Sound) -> Heard:
            begun = time.monotonic()
            transcript = transcriber.transcribe(sound.samples, beam_size=beam_size)
            return _heard(transcript, time.monotonic() - begun)

        policy = {"beam_size": beam_size, **chunk}
        yield System("asr-core", ", ".join(f"{name} {value:g}" for name, value in policy.items()), hear)


def _heard(transcript: Transcript, seconds: float) -> Heard:
    coverage = [
        Part(part.start_sample / RATE, part.end_sample / RATE, part.state, part.note) for part in transcript.coverage
    ]
    guards = [(guard.kind, guard.start_ms / 1000, guard.end_ms / 1000) for guard in transcript.guards]
    return Heard(transcript.text, seconds, None, coverage, guards)


@contextmanager
def streamed(directory: Path, model: str = MODEL) -> Iterator[System]:
    """asr-core as a server of its own, asked for events; the text is what the deltas add up to."""
    with ExitStack() as closing:
        arguments = ("--model", model, "--max-bytes", str(2**28), "--request-timeout", "3600")
        server = Server(directory, dict(os.environ), *arguments)
        closing.callback(server.close)
        client = closing.enter_context(httpx.Client(base_url=server.url, timeout=3600.0))
        yield System("asr-core streamed", "greedy", lambda sound: _stream(client, model, sound))


def _stream(client: httpx.Client, model: str, sound: Sound) -> Heard:
    file = io.BytesIO()
    soundfile.write(file, sound.samples, RATE, format="FLAC", subtype="PCM_16")
    form = {"model": model, "stream": "true"}
    begun, first, text = time.monotonic(), None, ""
    with client.stream("POST", TRANSCRIPTIONS, data=form, files={"file": file.getvalue()}) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            event = json.loads(line.removeprefix("data: ") or "{}")
            if event.get("type") == "transcript.text.delta":
                text += event["delta"]
                first = first or time.monotonic() - begun
            elif event.get("type") == "transcript.text.done":
                assert event["text"] == text, "the deltas do not add up"
                return Heard(text, time.monotonic() - begun, first)
            assert "error" not in event, event
    raise AssertionError("the stream has no end")


def faster_whisper(directory: Path) -> list[System]:
    """Its two modes, with their defaults, on the same weights."""
    model = WhisperModel(str(ctranslate2.save(MODEL, directory)), device="cpu", compute_type=DTYPE)
    batched = BatchedInferencePipeline(model)
    return [
        System("faster-whisper", "sequential", lambda sound: _timed(lambda: model.transcribe(sound.samples))),
        System(
            "faster-whisper",
            "batched",
            lambda sound: _timed(lambda: batched.transcribe(sound.samples, batch_size=BATCH)),
        ),
    ]


def _timed(transcribe: Callable[[], tuple[Any, Any]]) -> Heard:
    begun = time.monotonic()
    segments, _ = transcribe()
    text = " ".join(segment.text.strip() for segment in segments)
    return Heard(text, time.monotonic() - begun)
