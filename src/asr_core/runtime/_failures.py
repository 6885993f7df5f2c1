"""What a failed call leaves behind: a typed error, and no frame that holds its tensors."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from concurrent.futures import CancelledError

from asr_core.errors import AsrError, EngineError, OverloadedError


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and, each once, all it came from."""
    pending, seen = [error], set[int]()
    while pending:
        link = pending.pop()
        if id(link) not in seen:
            seen.add(id(link))
            yield link
            pending += [origin for origin in (link.__cause__, link.__context__) if origin is not None]


def detach(error: BaseException) -> str:
    """The traceback as text; the error lets go of its frames, whose locals are a batch and all computed of it."""
    text = "".join(traceback.format_exception(error))
    for link in chain(error):
        link.__traceback__ = None
    return text


def typed(error: BaseException, doing: str) -> AsrError:
    """An error fit for whoever waits; ``doing`` names the work that failed."""
    if any(map(_is_out_of_memory, chain(error))):
        return EngineError(f"{doing}: out of memory", layer="encoder")
    if isinstance(error, AsrError):
        return error
    if isinstance(error, CancelledError):
        return OverloadedError(f"{doing}: the compute thread was closed", layer="encoder")
    wrapped = EngineError(f"{doing}: {type(error).__name__}: {error}", layer="encoder")
    wrapped.__cause__ = error
    return wrapped


def is_crash(error: BaseException) -> bool:
    """Whether this would have ended its thread: SystemExit and whatever else is no Exception."""
    return any(not isinstance(link, Exception) for link in chain(error))


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    return isinstance(error, (MemoryError, torch.OutOfMemoryError))
