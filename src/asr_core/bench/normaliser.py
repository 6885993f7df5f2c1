"""What two texts are made of before they are compared, so that a comma is no error."""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Callable

from asr_core.errors import BenchError

Normalise = Callable[[str], str]

PLAIN = "plain"
"""Name of the one for every language: letters, marks and digits in lower case; all else separates words."""

_APOSTROPHES = "'’"  # noqa: RUF001  (the one that printers use)


def open_normaliser(name: str) -> Normalise:
    """:data:`PLAIN`, or a class or function of an installed package, as ``package.module:Name``.

    Raises:
        BenchError: there is none of this name.
    """
    if name == PLAIN:
        return plain
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        normalise: Normalise = found() if isinstance(found, type) else found
        if isinstance(normalise("a text"), str):
            return normalise
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise BenchError(f"normaliser {name!r} cannot be used: {error}", param="normaliser") from error
    raise BenchError(f"normaliser {name!r} makes no text of a text", param="normaliser")


def plain(text: str) -> str:
    """Words of ``text`` with a space between; what is within a word after an apostrophe is part of it."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = (letter if _is_said(letter) else " " for letter in folded if letter not in _APOSTROPHES)
    return " ".join("".join(kept).split())


def _is_said(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LMN"


def letters(text: str) -> str:
    """``text`` with a space after each letter; marks stay with theirs."""
    spaced = (letter if unicodedata.category(letter)[0] == "M" else f" {letter}" for letter in text if letter != " ")
    return "".join(spaced).strip()
