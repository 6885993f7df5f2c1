"""The numbers in the small files beside a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asr_core.errors import CheckpointError


def section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``, empty where there is none.

    Raises:
        CheckpointError: it is no object.
    """
    value = settings.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise CheckpointError(f"{name} is not a JSON object in this checkpoint")
    return value or {}


def positive(settings: Mapping[str, Any], name: str, default: int) -> int:
    """The number under ``name``.

    Raises:
        CheckpointError: it is no positive integer.
    """
    value = settings.get(name, default)
    if not isinstance(value, int) or value <= 0:
        raise CheckpointError(f"{name} is {value!r} in this checkpoint, not a positive integer")
    return value
