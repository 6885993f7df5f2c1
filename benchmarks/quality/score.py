"""Errors, word by word: how many, where, and which runs of words are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jiwer
from attrs import frozen
from whisper.normalizers import BasicTextNormalizer, EnglishTextNormalizer

from .corpus import Sentence, Unit

NORMALISERS: dict[Unit, Callable[[str], str]] = {
    "word": EnglishTextNormalizer(),
    "letter": BasicTextNormalizer(split_letters=True),
}
"""Those of openai-whisper; letters make a character error rate, also of a text in two scripts."""

MISSING = 3
"""So many words in a row that nobody wrote down are a gap, not slips of the ear."""


@frozen
class Word:
    """A unit of the reference, where it is said (seconds) and the errors at it.

    An insertion counts at the word before it.
    """

    text: str
    start: float
    end: float
    sentence: int
    errors: int = 0
    missing: bool = False


@frozen
class Score:
    """Counts of one text, or of several."""

    words: tuple[Word, ...]
    substitutions: int
    deletions: int
    insertions: int

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    def __add__(self, other: Score) -> Score:
        return Score(
            self.words + other.words,
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
        )

    @property
    def percent(self) -> float:
        """Errors per hundred words, or letters, of the reference."""
        return 100 * self.errors / len(self.words)

    def missing_runs(self) -> list[tuple[float, float]]:
        """Start and end of every run of at least MISSING words that are not in the text."""
        runs, run = [], []
        for word in [*self.words, None]:
            if word is not None and word.missing:
                run.append(word)
                continue
            if len(run) >= MISSING:
                runs.append((run[0].start, run[-1].end))
            run = []
        return runs


def score(sentences: Sequence[Sentence], text: str, unit: Unit) -> Score:
    """Compare ``text`` with what was said."""
    words = reference(sentences, unit)
    output = jiwer.process_words(" ".join(word[0] for word in words), NORMALISERS[unit](text))
    errors, missing = [0] * len(words), [False] * len(words)
    for chunk in output.alignments[0]:
        if chunk.type == "insert":
            errors[max(0, chunk.ref_start_idx - 1)] += chunk.hyp_end_idx - chunk.hyp_start_idx
        elif chunk.type != "equal":
            for i in range(chunk.ref_start_idx, chunk.ref_end_idx):
                errors[i], missing[i] = errors[i] + 1, chunk.type == "delete"
    marked = (Word(*word, *marks) for word, *marks in zip(words, errors, missing, strict=True))
    return Score(tuple(marked), output.substitutions, output.deletions, output.insertions)


def reference(sentences: Sequence[Sentence], unit: Unit) -> list[tuple[str, float, float, int]]:
    """Normalised words with start, end and number of their sentence: each letter lasts as long as the others of it."""
    found = []
    for number, sentence in enumerate(sentences):
        words = NORMALISERS[unit](sentence.text).split()
        letter = (sentence.end - sentence.start) / sum(len(word) + 1 for word in words)
        at = sentence.start
        for word in words:
            end = at + letter * (len(word) + 1)
            found.append((word, at, end, number))
            at = end
    return found
