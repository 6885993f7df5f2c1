"""Marks to structure: segments, speakers and languages are folded out of the pieces, so they can never change text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from attrs import define, evolve, field, frozen

from asr_core.runtime.text import Fragment
from asr_core.types import End, Language, Mark, Segment, Speaker, Start, Word


@frozen
class Folded:
    """One clip's text and what its marks said; times in milliseconds from the clip's start."""

    text: str
    segments: tuple[Segment, ...]
    languages: tuple[str, ...]


@define(eq=False)
class _Draft:
    """A segment being collected; bounds its marks left out stay None until the neighbours are known."""

    start: int | None = None
    end: int | None = None
    speaker: str | None = None
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
    return Folded(text.strip(), _bounded(drafts, duration_ms, before), tuple(dict.fromkeys(languages)))


def _collect(fragments: Iterable[Fragment], speaker: str | None) -> tuple[list[_Draft], list[str]]:
    drafts: list[_Draft] = [_Draft(speaker=speaker)]
    languages: list[str] = []
    for fragment in fragments:
        ended: _Draft | None = None
        for item in fragment.piece:
            if isinstance(item, Language):
                languages.append(item.code)
            elif isinstance(item, str):
                drafts[-1].strings.append(item)
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
