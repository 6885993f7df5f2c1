"""Scripted models, which commit by every unit, and what a stream says of them."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from asr_core import audio, pipeline
from asr_core.api import Transcriber, load
from asr_core.loading import ServedModel
from asr_core.runtime.stream import TextDelta
from asr_core.testing.distributions import write_distribution
from asr_core.types import Samples, Segment, Transcript, TranscriptionRequest, Waveform

PLUGINS = Path(__file__).parent / "plugins"
SECOND = np.full(16_000, 0.5, np.float32)

Script = Sequence[Sequence[Sequence[int]]]
"""Clips, attempts, tokens."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Transcriber]]:
    """Open a scripted model by name, once; installed for this module's tests only."""
    site = tmp_path_factory.mktemp("scripted")
    modules = {f"asr_{name}": (PLUGINS / f"{name}.py").read_text() for name in ("scripted", "reviewed", "guarded")}
    for module, source in modules.items():
        write_distribution(site, module.replace("_", "-"), {module: source}, {module: module})
    models: dict[str, Transcriber] = {}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.syspath_prepend(str(site))
        importlib.invalidate_caches()

        def open_(name: str) -> Transcriber:
            if name not in models:
                models[name] = stack.enter_context(load(name))
            return models[name]

        yield open_


Events = list[TextDelta | Segment | Transcript]


def streamed(
    served: ServedModel,
    sound: Samples,
    request: TranscriptionRequest,
    into: Events | None = None,
    *,
    segments: bool = False,
) -> Events:
    """Everything a stream says, on an event loop of its own; ``into`` has it even if an error ends the stream."""
    events = [] if into is None else into

    async def collect() -> None:
        async def read(rate: int) -> Waveform:
            return audio.from_array(sound, rate, rate)

        async for event in pipeline.stream(served, read, request, segments=segments):
            events.append(event)

    asyncio.run(collect())
    return events


@pytest.fixture(scope="session", name="streamed")
def streamed_fixture() -> Callable[..., Events]:
    return streamed


def told(segment: Segment) -> tuple[int, int, str, str | None]:
    return segment.start_ms, segment.end_ms, segment.text, segment.speaker


@pytest.fixture(scope="module")
def play(opened: Callable[[str], Transcriber]) -> Callable[[str, Script], tuple[list[str], Transcript]]:
    """What model ``name`` streams for a script, after the checks that hold for every stream."""

    def play(name: str, script: Script) -> tuple[list[str], Transcript]:
        request = TranscriptionRequest(options={"script": json.dumps(script)})
        sound = np.tile(SECOND, len(script))
        *events, transcript = streamed(opened(name).served, sound, request, segments=True)
        assert isinstance(transcript, Transcript)
        texts = [event.text for event in events if isinstance(event, TextDelta)]
        assert all(texts)
        assert [told(event) for event in events if isinstance(event, Segment)] == list(map(told, transcript.segments))
        assert "".join(texts) == transcript.text
        return texts, transcript

    return play
