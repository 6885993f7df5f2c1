"""How much of the speech in a clip its text accounts for: texts end early, and nothing else tells."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from asr_core.runtime.fold import Folded
from asr_core.speech import Voice

GAP_MS = 1000
"""So much voiced sound without text is speech that is missing: a cough, a click, a breath are shorter."""

RATED_MS = 3000
"""Voiced sound from which the amount of text says anything."""

HEADWAY = 1 / 8
"""Share of the voiced sound that a clip which was taken again has to give text for, else its rest is given up."""

Span = tuple[int, int]
"""Milliseconds from the clip's start."""


@frozen
class Account:
    """What is to be done about speech without text.

    From ``resume_ms`` on the clip is to be decoded anew, or all of it ``in_parts``. ``lost`` stays without text, and
    where there is ``little`` of it some is missing, nobody knows where.
    """

    resume_ms: int | None = None
    in_parts: bool = False
    lost: tuple[Span, ...] = ()
    little: bool = False


def account(
    folded: Folded, voice: Voice, end_ms: int, least_rate: float, *, sent: bool, retaken: bool, looped: bool
) -> Account:
    """Compare the text of a clip up to ``end_ms`` with what sounds there.

    ``least_rate`` are bytes of UTF-8 per voiced second. What was ``sent`` cannot be taken back. A clip that is
    ``retaken`` gets no third chance, but for what lies behind its text if that did not end as it ``looped``. How far a
    text reaches that looped nobody knows behind the last end of the model's own: that stays without text.
    """
    voiced = voice.ms(0, end_ms)
    if not folded.text:
        return _nothing(voiced, end_ms, retaken)
    gaps = [gap for gap in _gaps(folded, end_ms, looped=looped) if voice.ms(*gap) >= GAP_MS]
    # Text may be at the very end too: where times beyond it were moved there.
    if gaps and gaps[-1] == (max(segment.end_ms for segment in folded.segments), end_ms):
        resume_ms = gaps[-1][0]
        headway = not looped and voice.ms(0, resume_ms) >= HEADWAY * voiced
        if headway if retaken else resume_ms > 0:
            return Account(resume_ms, lost=tuple(gaps[:-1]))
    elif voiced >= RATED_MS and 1000 * len(folded.text.encode()) < least_rate * voiced:
        return Account(lost=tuple(gaps), little=True) if sent or retaken else Account(in_parts=True)
    return Account(lost=tuple(gaps))


def _nothing(voiced: int, end_ms: int, retaken: bool) -> Account:
    if voiced < GAP_MS:
        return Account()
    return Account(lost=((0, end_ms),)) if retaken or voiced < RATED_MS else Account(in_parts=True)


def _gaps(folded: Folded, end_ms: int, *, looped: bool) -> Iterator[Span]:
    """Before, between and behind the segments, where the model's own times say so; the last one ends at ``end_ms``.

    What has no end as it ``looped`` counts as nothing, unless no segment has a time.
    """
    told = list(zip(folded.segments, folded.marked, strict=True))
    if looped and any(map(any, folded.marked)):
        while told and not told[-1][1][1]:
            told.pop()
    latest, known = 0, True
    for segment, (has_start, has_end) in told:
        if known and has_start and segment.start_ms > latest:
            yield latest, segment.start_ms
        latest, known = max(latest, segment.end_ms), has_end
    if known and latest < end_ms:
        yield latest, end_ms
