"""What two clips told of the sound that both heard, told once: texts, segments, words, tokens and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from attrs import evolve, frozen

from asr_core.ledger import ClipTranscript
from asr_core.longform import Part, seam
from asr_core.speech import Voice
from asr_core.types import Clip, Guard, Segment, SpokenToken, Stretch, Waveform, Word

NEAR = 40
"""Characters after the last one in which the next is looked for: an aligner's word may not be there, or only later."""

Results = Sequence[ClipTranscript]


@frozen
class Cut:
    """At ``sample`` of the audio; of what is said in either clip, the other heard a share too."""

    sample: int
    left_share: float
    right_share: float

    @classmethod
    def between(cls, left: Part, right: Part, waveform: Waveform, floor: float) -> Cut:
        """The cut of two neighbours; nothing below ``floor`` is taken for speech."""
        both = right.start_sample - right.before, left.end_sample + left.after
        return cls(left.end_sample, *(_share(part.heard(waveform), *both, floor) for part in (left, right)))


def _share(clip: Clip, start: int, end: int, floor: float) -> float:
    """How much of the voice of ``clip`` lies between these samples; of the clip, where none stands out."""
    voice = Voice.of(clip.samples, clip.rate, floor)
    first, last = (round(1000 * (sample - clip.start_sample) / clip.rate) for sample in (start, end))
    whole = voice.ms(0, round(1000 * clip.duration))
    return voice.ms(first, last) / whole if whole else (end - start) / len(clip.samples)


def join(left: Results, right: Results, cut: Cut) -> tuple[list[ClipTranscript], list[ClipTranscript]]:
    """The results of two clips without what the other tells; ``segments`` are on the clock of the audio."""
    told, goes_on = seam(_text(left), _text(right), cut.left_share, cut.right_share)
    before = [
        evolve(result, stretches=_until(result.stretches, cut.sample), guards=_begun(result, cut.sample))
        for result in _kept(left, 0, told)
    ]
    end_ms = max((segment.end_ms for result in before for segment in result.segments), default=0)
    after = [
        evolve(
            result,
            segments=tuple(_from(segment, end_ms) for segment in result.segments),
            stretches=_since(result.stretches, cut.sample),
            guards=_unended(result, cut.sample),
        )
        for result in _kept(right, goes_on, len(_text(right)))
    ]
    return before, after


def _text(results: Results) -> str:
    return " ".join(result.text for result in results)


def _kept(results: Results, first: int, last: int) -> Iterator[ClipTranscript]:
    """Characters ``first`` to ``last`` of their text."""
    starts = accumulate((1 + len(result.text) for result in results), initial=0)
    for result, start in zip(results, starts, strict=False):
        length = len(result.text)
        yield _cut(result, min(max(first - start, 0), length), min(max(last - start, 0), length))


def _cut(result: ClipTranscript, first: int, last: int) -> ClipTranscript:
    if (first, last) == (0, len(result.text)):
        return result
    tokens = list(zip(result.tokens, _places(result.text, result.tokens), strict=True))
    words = zip(result.words, _places(result.text, result.words), strict=True)
    segments = (
        _part(segment, begin, [token for token, at in tokens if max(first, begin) <= at < min(last, end)], first, last)
        for segment, begin in zip(result.segments, _places(result.text, result.segments), strict=True)
        if (end := begin + len(segment.text)) > first and begin < last
    )
    return evolve(
        result,
        text=result.text[first:last].strip(),
        segments=tuple(segments),
        words=tuple(word for word, at in words if first <= at < last),
        tokens=tuple(token for token, at in tokens if first <= at < last),
    )


def _places(text: str, parts: Iterable[Segment | Word | SpokenToken]) -> Iterator[int]:
    """Where in ``text`` each begins; one that is not there, as an aligner spelt it otherwise, where the last ended."""
    end = 0
    for part in parts:
        shown = part.text.strip()
        start = text.find(shown, end, end + len(shown) + NEAR)
        yield max(start, end)
        end = end if start < 0 else start + len(shown)


def _part(segment: Segment, begin: int, tokens: Sequence[SpokenToken], first: int, last: int) -> Segment:
    """Of a segment at character ``begin`` what is within the bounds; its times as if all letters took as long."""
    start, end = max(first - begin, 0), min(last - begin, len(segment.text))
    if (start, end) == (0, len(segment.text)):
        return segment
    per_letter = (segment.end_ms - segment.start_ms) / len(segment.text)
    return evolve(
        segment,
        start_ms=segment.start_ms + round(per_letter * start),
        end_ms=segment.start_ms + round(per_letter * end),
        text=segment.text[start:end].strip(),
        tokens=tuple(number for token in tokens for number in token.ids),
        logprobs=tuple(logprob for token in tokens for logprob in token.logprobs),
    )


def _from(segment: Segment, start_ms: int) -> Segment:
    return evolve(segment, start_ms=max(segment.start_ms, start_ms), end_ms=max(segment.end_ms, start_ms))


def _until(stretches: Iterable[Stretch], sample: int) -> tuple[Stretch, ...]:
    return tuple(evolve(one, end_sample=min(one.end_sample, sample)) for one in stretches if one.start_sample < sample)


def _since(stretches: Iterable[Stretch], sample: int) -> tuple[Stretch, ...]:
    return tuple(
        evolve(one, start_sample=max(one.start_sample, sample)) for one in stretches if one.end_sample > sample
    )


def _begun(result: ClipTranscript, sample: int) -> tuple[Guard, ...]:
    ms = _milliseconds(result, sample)
    return tuple(evolve(guard, end_ms=min(guard.end_ms, ms)) for guard in result.guards if guard.start_ms < ms)


def _unended(result: ClipTranscript, sample: int) -> tuple[Guard, ...]:
    ms = _milliseconds(result, sample)
    return tuple(evolve(guard, start_ms=max(guard.start_ms, ms)) for guard in result.guards if guard.end_ms > ms)


def _milliseconds(result: ClipTranscript, sample: int) -> int:
    return round(1000 * sample / result.clip.rate)
