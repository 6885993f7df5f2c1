"""How files and what is wrong with them are called on a line of the terminal."""

from __future__ import annotations

from pathlib import Path


def shown(path: Path | str) -> str:
    """``path`` on one line: line breaks, control characters and bytes that are no text are escaped."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in str(path)
    )


def reason(error: OSError) -> str:
    """What the system says, without number and path."""
    return error.strerror or str(error)
