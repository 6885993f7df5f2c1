"""Where the texts of two clips meet that were both heard beyond the cut between them: what both say is told once."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from attrs import frozen

from asr_core.longform._join import UNSPACED

REACH = 1.5
"""The seam is looked for among so many times the words that the overlap has on average: speech is uneven."""

CHANCE = 2
"""A run beside which more than so many times its words would be dropped is one by chance: "the", say."""

_LETTERS = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
_WORD = re.compile(rf"[{_LETTERS}][^\w\s]*|[^\s{_LETTERS}]+")
"""With the marks beside it; in scripts without spaces, a character and the marks behind it."""


@frozen
class _Word:
    """Ends at character ``end`` of its text; ``key`` is what it is compared by."""

    key: str
    end: int


def seam(left: str, right: str, left_share: float, right_share: float) -> tuple[int, int]:
    """How many characters of ``left`` are told, and at which one ``right`` goes on.

    Each share says how much of a clip's speech the other heard as well. It is in the middle of the longest run of words
    that both have there, as what a clip says at its very ends, where words are heard in half, is often wrong; of equal
    runs, the one beside which fewest words are dropped. Without one, all of both is told: what was said twice can be
    seen, what was lost cannot.
    """
    lefts, rights = _words(left), _words(right)
    tail = lefts[len(lefts) - _reach(lefts, left_share) :]
    head = rights[: _reach(rights, right_share)]
    run = _longest_run([word.key for word in tail], [word.key for word in head])
    if run is None:
        return len(left), 0
    first, second, length = run
    return tail[first + length // 2].end, head[second + length // 2].end


def _words(text: str) -> list[_Word]:
    words = (_Word(_key(word[0]), word.end()) for word in _WORD.finditer(text))
    return [word for word in words if word.key]


def _key(word: str) -> str:
    """Its letters, digits and the signs that belong to them, without case."""
    return "".join(letter for letter in word.casefold() if unicodedata.category(letter)[0] in "LNM")


def _reach(words: Sequence[_Word], share: float) -> int:
    return min(len(words), math.ceil(REACH * share * len(words)))


def _longest_run(tail: Sequence[str], head: Sequence[str]) -> tuple[int, int, int] | None:
    """Where in both it begins, and its length."""
    best = None
    lengths = [0] * (len(head) + 1)
    for i in reversed(range(len(tail))):
        lengths = [1 + lengths[j + 1] if tail[i] == head[j] else 0 for j in range(len(head))] + [0]
        for j, length in enumerate(lengths):
            dropped = len(tail) - i - length + j
            if dropped <= CHANCE * length and (best is None or (length, -dropped) > best[0]):
                best = (length, -dropped), (i, j, length)
    return best and best[1]
