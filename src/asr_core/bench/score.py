"""Word and letter errors of texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from attrs import frozen

from asr_core.bench.normaliser import PLAIN, letters, open_normaliser
from asr_core.errors import BenchError

Unit = Literal["word", "letter"]

LETTERED = frozenset({"bo", "dz", "ja", "km", "ko", "lo", "my", "th", "yue", "zh"})
"""Languages written without spaces between words, and Korean, whose spaces are a matter of taste: letters count."""


@frozen
class Rate:
    """Errors, and the words or letters they were made in."""

    errors: int
    units: int

    @property
    def percent(self) -> float:
        """Errors per hundred words or letters; of none, 0."""
        return 100 * self.errors / self.units if self.units else 0.0

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.errors + other.errors, self.units + other.units)


def unit_of(language: str | None) -> Unit:
    """What errors of a text in ``language`` are counted in."""
    return "letter" if language and language.lower().partition("-")[0] in LETTERED else "word"


class Scorer:
    """Counts errors as jiwer does, in texts that were normalised first.

    Raises:
        BenchError: jiwer is not installed, or there is no such normaliser.
    """

    def __init__(self, normaliser: str = PLAIN) -> None:
        try:
            import jiwer
        except ImportError as error:
            raise missing(error) from error
        self._compare = jiwer.process_words
        self._normalise = open_normaliser(normaliser)

    def rate(self, reference: str, text: str, language: str | None) -> Rate:
        """Compare one ``text`` with what was said."""
        both = (self._normalise(reference), self._normalise(text))
        output = self._compare(*(map(letters, both) if unit_of(language) == "letter" else both))
        errors = output.substitutions + output.deletions + output.insertions
        return Rate(errors, output.hits + output.substitutions + output.deletions)


def total(rates: Iterable[Rate]) -> Rate | None:
    """All of them together, None of none."""
    return sum(some, Rate(0, 0)) if (some := list(rates)) else None


def missing(error: ImportError) -> BenchError:
    """What to install when a library of the extra is not there."""
    return BenchError(f"{error.name} is not installed: pip install 'asr-core[bench]'")
