"""Who is measured: a model loaded here, or one on a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from asr_core.api import Transcriber
from asr_core.bench import memory
from asr_core.bench.drive import Target
from asr_core.bench.library import library
from asr_core.bench.remote import Remote
from asr_core.loading import EngineOptions
from asr_core.plugins import Plugins


@frozen(eq=False)
class Subject:
    """What is asked, what is known of it, and the memory it took so far in MiB above imports, None if nobody knows.

    ``distributions`` are the packages whose versions matter beside the core's.
    """

    ask: Target
    about: Mapping[str, Any]
    memory: Callable[[], float | None]
    distributions: tuple[str, ...] = ()


@contextmanager
def loaded(plugins: Plugins, model: str, options: EngineOptions, checkpoint: str | None) -> Iterator[Subject]:
    """The model in this process; what stands in memory before counts as imports."""
    level = memory.level()
    with Transcriber(plugins, model, options, checkpoint) as transcriber:
        served = transcriber.served
        about = {
            "target": "this process",
            "engine": served.engine_name,
            "device": served.model.device,
            "dtype": served.model.dtype,
        }
        owner = plugins.owner(served.card.name).distribution
        yield Subject(library(transcriber), about, lambda: memory.peak() - level, (owner,))


@contextmanager
def served(url: str, model: str, *, stream: bool, key: str | None, pid: int | None) -> Iterator[Subject]:
    """The model on a server; with its process its memory, above what a server of this environment imports."""
    level = memory.level_of() if pid is not None else 0.0
    with Remote(url, model, stream=stream, key=key) as remote:
        known = remote.facts()
        about = {"target": url} | {name: known[name] for name in ("engine", "device", "dtype") if name in known}
        yield Subject(remote, about, lambda: None if pid is None else memory.peak_above(level, pid))
