"""The small files of a checkpoint, read with a bound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asr_core.errors import CheckpointError

MAX_SMALL_FILE = 64 << 20
"""Bytes of a file beside the weights: tokenizers have some 20 MB."""


def read_text(path: Path) -> str:
    """The whole of a small text file.

    Raises:
        CheckpointError: unreadable, no UTF-8, or over 64 MiB.
    """
    try:
        if (size := path.stat().st_size) > MAX_SMALL_FILE:
            raise CheckpointError(f"{path} has {size} bytes; at most {MAX_SMALL_FILE} are read")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """The JSON object in a small file.

    Raises:
        CheckpointError: as :func:`read_text`, or the content is no JSON object.
    """
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value
