"""Marks to structure: segments, speakers and languages are folded out of the pieces, so they can never change text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from attrs import define, evolve, field, frozen

from asr_core.runtime.text import Fragment
from asr_core.types import End, Language, Mark, Piece, Segment, Speaker, Start, Word

SLACK_MS = 100
"""So far beyond the clip a time may lie without being reported: models round to frames of up to 80 ms."""


@frozen
class Folded:
    """One clip's text and what its marks said; times in milliseconds from the clip's start.

    ``marked`` tells of each segment whether its start and its end are the model's own rather than its neighbours'.
    ``outside`` are the times that lay beyond the clip.
    """

    text: str
    segments: tuple[Segment, ...]
    languages: tuple[str, ...]
    marked: tuple[tuple[bool, bool], ...] = ()
    outside: tuple[int, ...] = ()

    @property
    def timed(self) -> Iterator[Segment]:
        """The segments of which both times are the model's own."""
        return (segment for segment, marked in zip(self.segments, self.marked, strict=True) if all(marked))


@define(eq=False)
class _Draft:
    """A segment being collected; bounds its marks left out stay None until the neighbours are known.

    ``places`` say where its strings are: which fragment, and which item of its piece.
    """

    start: int | None = None
    end: int | None = None
    speaker: str | None = None
    places: list[tuple[int, int]] = field(factory=list)
    strings: list[str] = field(factory=list)
    tokens: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)

    @property
    def text(self) -> str:
        return "".join(self.strings)

    @property
    def silent(self) -> bool:
        return all(not string.strip() for string in self.strings)


@frozen
class Before:
    """Where the segment before these fragments started and ended, and who talks as they begin."""

    start_ms: int = 0
    end_ms: int = 0
    speaker: str | None = None


def fold(fragments: Iterable[Fragment], duration_ms: int, before: Before = Before()) -> Folded:
    """Fold the ``fragments`` of a clip that lasts ``duration_ms`` and go on from what was ``before``.

    Missing bounds come from the neighbours, all are clamped to the clip and starts never go back; segments without
    text are dropped.
    """
    drafts, languages = _collect(fragments, before.speaker)
    text = "".join(draft.text for draft in drafts)
    bounds = (bound for draft in drafts for bound in (draft.start, draft.end) if bound is not None)
    return Folded(
        text.strip(),
        _bounded(drafts, duration_ms, before),
        tuple(dict.fromkeys(languages)),
        tuple((draft.start is not None, draft.end is not None) for draft in drafts if not draft.silent),
        tuple(bound for bound in bounds if not -SLACK_MS <= bound <= duration_ms + SLACK_MS),
    )


def without(
    fragments: Sequence[Fragment], duration_ms: int, before: Before, unwanted: Sequence[Segment]
) -> list[Fragment]:
    """The ``fragments`` less what is said in ``unwanted`` segments, and its tokens; marks stay."""
    drafts, _ = _collect(fragments, before.speaker)
    said = (draft for draft in drafts if not draft.silent)
    segments = _bounded(drafts, duration_ms, before)
    places = {place for draft, one in zip(said, segments, strict=True) if one in unwanted for place in draft.places}
    kept = (
        evolve(fragment, piece=tuple(item for at, item in enumerate(fragment.piece) if (number, at) not in places))
        for number, fragment in enumerate(fragments)
    )
    return [new for new, fragment in zip(kept, fragments, strict=True) if new.piece or not fragment.piece]


def until(fragments: Iterable[Fragment], length: int) -> list[Fragment]:
    """The ``fragments`` up to ``length`` characters, with the marks right behind them."""
    kept: list[Fragment] = []
    for fragment in fragments:
        piece, length = _until(fragment.piece, length)
        kept.append(evolve(fragment, piece=piece))
        if length < 0:
            break
    return kept


def _until(piece: Piece, length: int) -> tuple[Piece, int]:
    """What of ``piece`` is within ``length`` characters, and how many are left then; -1 if it was cut."""
    kept: list[str | Mark] = []
    for item in piece:
        if isinstance(item, str):
            if len(item) > length:
                return (*kept, item[:length]), -1
            length -= len(item)
        kept.append(item)
    return tuple(kept), length


def _collect(fragments: Iterable[Fragment], speaker: str | None) -> tuple[list[_Draft], list[str]]:
    drafts: list[_Draft] = [_Draft(speaker=speaker)]
    languages: list[str] = []
    for number, fragment in enumerate(fragments):
        ended: _Draft | None = None
        for at, item in enumerate(fragment.piece):
            if isinstance(item, Language):
                languages.append(item.code)
            elif isinstance(item, str):
                drafts[-1].strings.append(item)
                drafts[-1].places.append((number, at))
            else:
                ended = ended or (drafts[-1] if isinstance(item, End) else None)
                _mark(drafts, item)
        # A token that ends a segment belongs to it, even if it begins the next one too.
        owner = ended or drafts[-1]
        owner.tokens += fragment.tokens
        owner.logprobs += fragment.logprobs
    return drafts, languages


def _mark(drafts: list[_Draft], mark: Mark) -> None:
    draft = drafts[-1]
    if isinstance(mark, End):
        draft.end = mark.ms
        # What follows an end belongs to a new segment of the same speaker, until a mark says otherwise.
        drafts.append(_Draft(speaker=draft.speaker))
    elif isinstance(mark, Start):
        if not draft.silent:
            drafts.append(draft := _Draft(speaker=draft.speaker))
        draft.start = mark.ms
    elif isinstance(mark, Speaker):
        if not draft.silent:
            drafts.append(draft := _Draft())
        draft.speaker = mark.label


def _bounded(drafts: list[_Draft], duration_ms: int, before: Before) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    earliest, latest_end = before.start_ms, before.end_ms
    for number, draft in enumerate(drafts):
        if draft.silent:
            continue
        # One without text bounds what came before it all the same.
        bounds = (bound for later in drafts[number + 1 :] for bound in (later.start, later.end))
        following = next((bound for bound in bounds if bound is not None), None)
        start = draft.start if draft.start is not None else latest_end
        start = min(max(start, earliest), duration_ms)
        end = next((bound for bound in (draft.end, following) if bound is not None), duration_ms)
        end = min(max(end, start), duration_ms)
        text, tokens, logprobs = draft.text.strip(), tuple(draft.tokens), tuple(draft.logprobs)
        segments.append(Segment(start, end, text, draft.speaker, tokens, logprobs))
        earliest, latest_end = start, end
    return tuple(segments)


Timed = TypeVar("Timed", Segment, Word)


def shift(timed: Timed, by_ms: int, until_ms: int) -> Timed:
    """A segment or word on a clock that starts ``by_ms`` earlier, kept within ``until_ms``."""
    start, end = (min(bound + by_ms, until_ms) for bound in (timed.start_ms, timed.end_ms))
    return evolve(timed, start_ms=start, end_ms=end)
