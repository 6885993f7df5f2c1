"""What is measured with: a manifest of recordings, each with its language and what is said in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import frozen

from asr_core.errors import BenchError

FIELDS = {"path": "a text", "language": "a code or null", "reference": "a text"}
"""Fields of a line, and what each holds; others are for other programs."""


@frozen
class Line:
    """A recording and what is said in it; a ``language`` of None is not told to the model."""

    path: Path
    language: str | None
    reference: str


def read_manifest(file: Path) -> tuple[Line, ...]:
    """The lines of ``file``, an object of JSON each; paths are relative to the manifest.

    Raises:
        BenchError: it cannot be read, is empty, or a line is not what it should be; the message names line and field.
    """
    try:
        texts = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise BenchError(f"manifest {file} cannot be read: {error}", param="manifest") from error
    lines = tuple(_line(file, number, text) for number, text in enumerate(texts, 1) if text.strip())
    if not lines:
        raise BenchError(f"manifest {file} has no line", param="manifest")
    return lines


def _line(file: Path, number: int, text: str) -> Line:
    where = f"manifest {file}, line {number}"
    try:
        values: Any = json.loads(text)
    except ValueError as error:
        raise BenchError(f"{where}: no JSON: {error}", param="manifest") from error
    if not isinstance(values, dict):
        raise BenchError(f"{where}: no object with {', '.join(FIELDS)}", param="manifest")
    for field, what in FIELDS.items():
        allowed = (str, type(None)) if field == "language" else str
        if field not in values:
            raise BenchError(f"{where}: no {field!r}, which is {what}", param=field)
        if not isinstance(values[field], allowed):
            raise BenchError(f"{where}: {field!r} is {values[field]!r}, must be {what}", param=field)
    return Line(file.parent / values["path"], values["language"], values["reference"])
