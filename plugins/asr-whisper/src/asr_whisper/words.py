"""Words of the text and when each was said."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from asr_core.types import Clip, ClipOutput, PreparedClip, Tokens, Word
from asr_whisper.alignment import text_tokens, token_frames
from asr_whisper.frontend import Frontend
from asr_whisper.policy import FRAMES_PER_POSITION, HOP, SAMPLE_RATE
from asr_whisper.review import consumed

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages that write no spaces between words, of those Whisper speaks: a word is what a token completes."""

FRAME_MS = 1000 * FRAMES_PER_POSITION * HOP // SAMPLE_RATE

OPENING = frozenset({"Ps", "Pi", "Pd"})
"""Unicode categories of marks that belong to what follows: brackets, quotation marks, the dash before a speech."""

SPOKEN = "%&@#"
"""Marks that Unicode calls punctuation and people read out."""

_NUMBERS = re.compile(r"(?<!\S)\d{1,2}(?:[.,-]\d{1,2}){3,}(?!\d)")
"""Short numbers in a row without a space, as the model writes what is counted: each is a word."""


def align_words(
    frontend: Frontend,
    output: ClipOutput,
    clip: Clip,
    prepared: PreparedClip,
    attention: npt.NDArray[np.float32] | None,
) -> list[Word]:
    """Words that together are the text, each at least a frame long where the clip has room.

    Marks at both ends of a word do not count: the time that goes to a comma is the pause.
    """
    tokens = text_tokens(frontend, output)
    if attention is None:
        return []
    text, starts = spell(frontend, tokens)
    bounds = split_on_spaces(text) if _writes_spaces(frontend, prepared) else sorted(set(starts[:-1]))
    spans = list(pairwise([*join_punctuation(text, bounds), len(text)]))
    samples = consumed(frontend, output, prepared) or clip.end_sample - clip.start_sample
    frames = token_frames(frontend, prepared, attention, max(1, samples // HOP // FRAMES_PER_POSITION))
    places = (min(place, len(frames) - 1) for span in spans for place in _said(text, starts, *span))
    times = spread((FRAME_MS * int(frames[place]) for place in places), 1000 * samples // SAMPLE_RATE)
    texts = (text[begin:end].strip() for begin, end in spans)
    return [Word(*word) for word in zip(times[::2], times[1::2], texts, strict=True)]


def spell(frontend: Frontend, tokens: Tokens) -> tuple[str, list[int]]:
    """The text, and how many characters of it are whole before each token and at the end."""
    prefixes = [frontend.tokenizer.decode(tokens[:end], skip_special_tokens=False) for end in range(len(tokens) + 1)]
    text = prefixes.pop()
    return text, [*(len(prefix.rstrip("\N{REPLACEMENT CHARACTER}")) for prefix in prefixes), len(text)]


def split_on_spaces(text: str) -> list[int]:
    """Where words begin, the space before them being theirs."""
    begins = {match.start() for match in re.finditer(r"\s*\S+", text)}
    numbers = (match.start() + n for match in _NUMBERS.finditer(text) for n, _ in enumerate(match[0]) if n)
    return sorted(begins.union(place for place in numbers if not text[place - 1].isdigit()))


def join_punctuation(text: str, bounds: Sequence[int]) -> list[int]:
    """``bounds`` without those that would leave a word without a letter or digit, unless there is nothing else."""
    kept: list[int] = []
    hanging = False  # the last word waits for its first letter
    for begin, end in pairwise([*bounds, len(text)]):
        says = _says(text[begin:end])
        begins = not kept or (not hanging and (says or _opens(text[begin:end])))
        kept += [begin] if begins else []
        hanging = not says and (begins or hanging)
    return kept[:-1] if hanging and len(kept) > 1 else kept


def spread(times: Iterable[int], end_ms: int) -> list[int]:
    """Starts and ends in turn, made to increase up to ``end_ms`` at most.

    A word without length gets some of the pause beside it, or of its neighbours.
    """
    spread = list(times)
    step = min(FRAME_MS, end_ms // max(1, len(spread) // 2))
    for n in range(1, len(spread)):
        spread[n] = max(spread[n], spread[n - 1] + step * (n % 2))
    for n in reversed(range(len(spread))):
        spread[n] = min(spread[n], end_ms)
        end_ms = spread[n] - step * (n % 2)
    return spread


def _said(text: str, starts: Sequence[int], begin: int, end: int) -> tuple[int, int]:
    """The token with which ``text[begin:end]`` begins to be heard, and the one after its last that is heard."""
    heard = [n for n in range(begin, end) if not _is_mark(text[n])] or [begin, end - 1]
    # A token may hold the space and the first byte of a letter: a space is no mark to be left out.
    first = heard[0] if text[begin : heard[0]].strip() else begin
    whole = starts[bisect_right(starts, first) - 1]
    return bisect_left(starts, whole), bisect_left(starts, heard[-1] + 1)


def _writes_spaces(frontend: Frontend, prepared: PreparedClip) -> bool:
    """A translation is English, whatever was spoken."""
    translates = any(frontend.special.translate in part for part in prepared.prompt if isinstance(part, tuple))
    return translates or prepared.language not in WITHOUT_SPACES


def _is_mark(letter: str) -> bool:
    """Punctuation, white space, or what cannot be seen."""
    return unicodedata.category(letter)[0] in "PZC" and letter not in SPOKEN


def _says(text: str) -> bool:
    """Whether something in it is a word's; accents and vowel signs alone (Thai, say) are the letter's before them."""
    return any(unicodedata.category(letter)[0] in "LNS" or letter in SPOKEN for letter in text)


def _opens(text: str) -> bool:
    """Whether it ends in marks that belong to what follows."""
    last = text.rstrip()[-1:]
    return last != "" and (last in "¿¡" or unicodedata.category(last) in OPENING)
