"""Scripted models, which commit by every unit, and what a stream says of them."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asr_core import audio, pipeline
from asr_core.api import Transcriber, load
from asr_core.loading import ServedModel
from asr_core.runtime.stream import TextDelta
from asr_core.testing.distributions import write_distribution
from asr_core.types import Samples, Transcript, TranscriptionRequest

PLUGINS = Path(__file__).parent / "plugins"
SECOND = np.full(16_000, 0.5, np.float32)

Script = Sequence[Sequence[Sequence[int]]]
"""Clips, attempts, tokens."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Transcriber]]:
    """Open a scripted model by name, once; installed for this module's tests only."""
    site = tmp_path_factory.mktemp("scripted")
    modules = {f"asr_{name}": (PLUGINS / f"{name}.py").read_text() for name in ("scripted", "reviewed")}
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


Events = list[TextDelta | Transcript]


def streamed(served: ServedModel, sound: Samples, request: TranscriptionRequest, into: Events | None = None) -> Events:
    """Everything a stream says, on an event loop of its own; ``into`` has it even if an error ends the stream."""
    events = [] if into is None else into

    async def collect() -> None:
        read = partial(audio.from_array, sound, served.native_limit.sample_rate)
        async for event in pipeline.stream(served, read, request):
            events.append(event)

    asyncio.run(collect())
    return events


@pytest.fixture(scope="session", name="streamed")
def streamed_fixture() -> Callable[..., Events]:
    return streamed


@pytest.fixture(scope="module")
def play(opened: Callable[[str], Transcriber]) -> Callable[[str, Script], tuple[list[str], Transcript]]:
    """What model ``name`` streams for a script, after the checks that hold for every stream."""

    def play(name: str, script: Script) -> tuple[list[str], Transcript]:
        request = TranscriptionRequest(options={"script": json.dumps(script)})
        *deltas, transcript = streamed(opened(name).served, np.tile(SECOND, len(script)), request)
        assert isinstance(transcript, Transcript)
        assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
        texts: list[Any] = [delta.text for delta in deltas]
        assert "".join(texts) == transcript.text
        return texts, transcript

    return play
