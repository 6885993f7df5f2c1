"""Does a text end in a loop? By its letters alone: times between the repeats differ, and so do their tokens."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

REPEATS = 5
"""A refrain, a laugh, "no, no, no, no": people say a thing four times, and models in a loop much oftener."""

BYTES = 64
"""UTF-8 of the letters in a loop: speech has 10 to 20 bytes a second in any script, so it goes on for some seconds."""

WINDOW = 2000
"""Characters at the end of the text that are looked at: room for a paragraph, five times."""


def loop_start(text: str) -> int | None:
    """Where the repeats begin of what ``text`` goes on repeating to its end, in characters; None if it does not.

    What is repeated stands before that once, perhaps a bit more: up to the end of a sentence, or at least of a word.
    """
    offset = max(0, len(text) - WINDOW)
    places = [at for at in range(offset, len(text)) if unicodedata.category(text[at])[0] in "LMN"]
    letters = [text[at].casefold() for at in places]
    agreeing = _agreeing(letters[::-1])
    for period in range(1, len(letters) // REPEATS + 1):
        length = period + agreeing[period]
        if length >= REPEATS * period and len("".join(letters[-length:]).encode()) >= BYTES:
            # It begins anywhere in what is repeated, so it is parted where the writing does so most: a sentence ends.
            borders = pairwise(places[-length:][period - 1 : 2 * period])
            return max(borders, key=lambda border: border[1] - border[0])[1]
    return None


def _agreeing(items: list[str]) -> list[int]:
    """How many items from each place on are the same as those at the beginning (the Z function); 0 at place 0."""
    agreeing, left, right = [0] * len(items), 0, 0
    for at in range(1, len(items)):
        length = min(right - at, agreeing[at - left]) if at < right else 0
        while at + length < len(items) and items[length] == items[at + length]:
            length += 1
        agreeing[at] = length
        if at + length > right:
            left, right = at, at + length
    return agreeing
