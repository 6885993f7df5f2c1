"""Where the texts of two clips meet that were both heard beyond the cut between them: what both say is told once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from attrs import frozen

from asr_core.longform._join import UNSPACED

REACH = 1.5
"""The seam is looked for among so many times the words that the overlap has on average: speech is uneven."""

_LETTERS = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
_WORD = re.compile(rf"[{_LETTERS}][^\w\s]*|[^\s{_LETTERS}]+")
"""With the marks beside it; in scripts without spaces, a character and the marks behind it."""
_MARKS = re.compile(r"\W+")


@frozen
class _Word:
    """From ``start`` to ``end`` of its text; ``key`` is what it is compared by."""

    key: str
    start: int
    end: int


def seam(left: str, right: str, left_share: float, right_share: float) -> tuple[int, int]:
    """How many characters of ``left`` are told, and at which one ``right`` goes on.

    Each share says how much of a clip's time the other heard as well. It is in the middle of the longest run of words
    that both have there, as what a clip says at its very ends, where words are heard in half, is often wrong; of equal
    runs, the one beside which fewest words are dropped. Without a word in common, both are told up to the middle of
    what both heard.
    """
    lefts, rights = _words(left), _words(right)
    if not lefts or not rights:
        return len(left), 0
    behind = max(0, len(lefts) - _reach(lefts, left_share))
    head = rights[: _reach(rights, right_share)]
    if run := _longest_run([word.key for word in lefts[behind:]], [word.key for word in head]):
        first, second, length = run
        last, goes_on = behind + first + length // 2, second + length // 2 + 1
    else:
        last, goes_on = len(lefts) - 1 - round(len(lefts) * left_share / 2), round(len(rights) * right_share / 2)
    return lefts[last].end if last >= 0 else 0, rights[goes_on].start if goes_on < len(rights) else len(right)


def _words(text: str) -> list[_Word]:
    words = (_Word(_MARKS.sub("", word[0].casefold()), *word.span()) for word in _WORD.finditer(text))
    return [word for word in words if word.key]


def _reach(words: Sequence[_Word], share: float) -> int:
    return 1 + math.ceil(REACH * share * len(words))


def _longest_run(tail: Sequence[str], head: Sequence[str]) -> tuple[int, int, int] | None:
    """Where in both it begins, and its length."""
    best = None
    lengths = [0] * (len(head) + 1)
    for i in reversed(range(len(tail))):
        lengths = [1 + lengths[j + 1] if tail[i] == head[j] else 0 for j in range(len(head))] + [0]
        for j, length in enumerate(lengths):
            dropped = len(tail) - i - length + j
            if length and (best is None or (length, -dropped) > best[0]):
                best = (length, -dropped), (i, j, length)
    return best and best[1]
