"""What became of one clip: its transcript, which of its samples that accounts for, and what guards did to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from attrs import define, evolve, field, frozen

from asr_core.account import Account, Span, account
from asr_core.errors import PluginError
from asr_core.loading import ServedModel
from asr_core.runtime.fold import Folded
from asr_core.runtime.stream import ClipText
from asr_core.speech import Voice, is_silent, unvoiced_share
from asr_core.types import (
    Accept,
    Clip,
    Finish,
    Guard,
    GuardKind,
    PreparedClip,
    Samples,
    Segment,
    SpokenToken,
    Stretch,
    Usage,
    Word,
)

UNHEARD_MS = 500
"""Shorter text in silence may be a word that is timed beside its sound."""


@frozen(eq=False)
class ClipTranscript:
    """What became of one clip; times of segments and words in milliseconds from its start, of guards from the audio's.

    ``consumed_to`` (samples from the clip's start) is set when the rest is to be heard as a clip of its own.
    ``stretches`` (samples of the audio) tile what this accounts for, up to there or the clip's end. ``ended_early``
    says that the text ended before the speech: what is behind ``consumed_to`` is to be decoded anew. If that is None
    it is all of the clip, in parts: then there is no text, nothing was sent, and no sample is accounted for.
    """

    clip: Clip
    text: str = ""
    segments: tuple[Segment, ...] = ()
    language: str | None = None
    words: tuple[Word, ...] = ()
    tokens: tuple[SpokenToken, ...] = ()
    consumed_to: int | None = None
    ended_early: bool = False
    stretches: tuple[Stretch, ...] = ()
    guards: tuple[Guard, ...] = ()
    usage: Usage = Usage()

    @property
    def heard(self) -> Clip:
        """The part of the clip this accounts for."""
        end = self.clip.end_sample if self.consumed_to is None else self.clip.start_sample + self.consumed_to
        return Clip(self.clip.waveform, self.clip.start_sample, end)


@define(eq=False)
class Ledger:
    """Makes the transcript of ``text``, which it mends first; a clip is ``retaken`` after one that ended early."""

    served: ServedModel
    clip: Clip
    text: ClipText
    retaken: bool
    _guards: list[Guard] = field(init=False, factory=list)

    def report(self, kind: GuardKind, note: str, span: Span | None = None) -> None:
        """A guard stepped in between these milliseconds of the clip, or all of it."""
        first, last = self.clip.milliseconds(0), self.clip.milliseconds(len(self.clip.samples))
        start, end = (min(first + ms, last) for ms in span or (0, last))
        self._guards.append(Guard(kind, start, end, note))

    def silent(self) -> ClipTranscript:
        """Nobody speaks in it."""
        stretch = Stretch(self.clip.start_sample, self.clip.end_sample, "silent")
        return ClipTranscript(self.clip, stretches=(stretch,), guards=tuple(self._guards))

    def no_speech(self, prepared: PreparedClip) -> ClipTranscript:
        """The review says that nobody speaks in what is not committed."""
        self.text.drop()
        folded = self.text.folded()
        if not folded.text:
            return self.silent()
        self.report("no_speech", "text behind what was sent is dropped: nobody spoke there")
        return evolve(self._transcript(folded, prepared), stretches=tuple(self._stretches(self.clip)))

    def accept(self, verdict: Accept, finish: Finish, prepared: PreparedClip, voice: Voice) -> ClipTranscript:
        """The review is content: what the core finds is mended or reported, and all is committed.

        ``voice`` is the clip's.

        Raises:
            PluginError: ``consumed_to`` is nowhere in the clip, or before text.
        """
        looped = self._cut_loop(finish)
        note = self._mend(finish, prepared) or looped
        folded, consumed = self.text.folded(), self._consumed(verdict)
        folded = evolve(folded, segments=self._segments(folded, consumed))
        self._check_times(folded)
        result = self._account(folded, voice, consumed, looped=bool(looped))
        if result.in_parts:
            self.text.drop()
            return ClipTranscript(self.clip, language=prepared.language, ended_early=True, guards=tuple(self._guards))
        if result.little:
            note = "too little text for the speech"
        if result.resume_ms is not None:
            consumed = self._sample(result.resume_ms)
        transcript = self._transcript(folded, prepared, verdict.no_speech_prob)
        self.text.commit()
        transcript = evolve(transcript, consumed_to=consumed, ended_early=result.resume_ms is not None)
        return evolve(transcript, stretches=tuple(self._stretches(transcript.heard, result.lost, note)))

    def drop_unheard(self) -> None:
        """Forget what is not committed and said to be where nothing sounds."""
        for segment in self.text.drop_segments(self._is_unheard):
            self.report("no_speech", "text where nothing sounds was dropped", _span(segment))

    def _cut_loop(self, finish: Finish) -> str:
        """Cut the repeats that are not committed, if there are any; what there is to say of the clip."""
        start = self.text.loop_start()
        if start is None and finish != "loop":
            return ""
        cut = start is not None and self.text.cut(start)
        note = "text that repeated itself was cut" if cut else "text that repeats itself was sent already"
        self.report("loop", note)
        return note

    def _mend(self, finish: Finish, prepared: PreparedClip) -> str:
        """Cut words in silence as far as they are not committed; what there is to say of the clip."""
        note = f"cut at the budget of {prepared.budget} tokens" if finish == "length" else ""
        if note:
            self.report("budget", note)
        self.drop_unheard()
        for segment in self.text.folded().timed:
            if self._is_unheard(segment):
                self.report("no_speech", "text where nothing sounds was sent already", _span(segment))
        return note

    def _check_times(self, folded: Folded) -> None:
        if folded.outside:
            self.report("times", f"times outside the clip were moved into it: {len(folded.outside)}")

    def _account(self, folded: Folded, voice: Voice, consumed: int | None, *, looped: bool) -> Account:
        end_ms = round(1000 * (self.clip.duration if consumed is None else consumed / self.clip.rate))
        least_rate, sent = self.served.chunk_policy.least_rate, bool(self.text.committed)
        result = account(folded, voice, end_ms, least_rate, sent=sent, retaken=self.retaken, looped=looped)
        for span in result.lost:
            self.report("early_end", "speech without text", span)
        if result.resume_ms is not None:
            self.report("early_end", "the text ended before the speech: decoded anew", (result.resume_ms, end_ms))
        if result.in_parts:
            self.report("early_end", "too little text for the speech: decoded anew in parts", (0, end_ms))
        if result.little:
            self.report("early_end", "too little text for the speech", (0, end_ms))
        return result

    def _stretches(self, heard: Clip, lost: Iterable[Span] = (), note: str = "") -> Iterator[Stretch]:
        """Up to its end, in order; without empty ones."""
        at = heard.start_sample
        state: Literal["decoded", "redecoded"] = "redecoded" if self.retaken else "decoded"
        for span in lost:
            start, end = (min(heard.start_sample + self._sample(ms), heard.end_sample) for ms in span)
            if start > at:
                yield Stretch(at, start, state, note)
            yield Stretch(start, end, "lost", "speech without text")
            at = end
        if at < heard.end_sample:
            yield Stretch(at, heard.end_sample, state, note)

    def _transcript(self, folded: Folded, prepared: PreparedClip, no_speech: float | None = None) -> ClipTranscript:
        language = prepared.language or next(iter(folded.languages), None)
        segments = tuple(
            evolve(
                segment,
                temperature=prepared.sampling.temperature,
                clip_ms=self.clip.milliseconds(0),
                no_speech_prob=self._unvoiced(segment) if no_speech is None else no_speech,
            )
            for segment in folded.segments
        )
        return ClipTranscript(
            self.clip, folded.text, segments, language, tokens=self.text.spoken(), guards=tuple(self._guards)
        )

    def _unvoiced(self, segment: Segment) -> float:
        return unvoiced_share(self._samples(segment), self.clip.rate, self._floor)

    def _is_unheard(self, segment: Segment) -> bool:
        """Whether nothing sounds where it is said to be, for longer than models err."""
        return segment.end_ms - segment.start_ms >= UNHEARD_MS and is_silent(self._samples(segment), self._floor)

    def _segments(self, folded: Folded, consumed: int | None) -> tuple[Segment, ...]:
        """The segments, ending where the model stopped listening: what lies behind is heard again."""
        if consumed is None:
            return folded.segments
        end_ms = round(1000 * consumed / self.clip.rate)
        if any(segment.start_ms >= end_ms for segment in folded.segments):
            raise PluginError(f"{self._plugin}: text starts behind consumed_to, at {end_ms} ms, and would come twice")
        return tuple(evolve(segment, end_ms=min(segment.end_ms, end_ms)) for segment in folded.segments)

    def _consumed(self, verdict: Accept) -> int | None:
        length = self.clip.end_sample - self.clip.start_sample
        if verdict.consumed_to is None or verdict.consumed_to == length:
            return None
        if not 0 < verdict.consumed_to < length:
            # Hearing the same samples again would never end.
            raise PluginError(f"{self._plugin}: consumed_to is {verdict.consumed_to}, must be in 1..{length}")
        return verdict.consumed_to

    def _samples(self, segment: Segment) -> Samples:
        return self.clip.samples[self._sample(segment.start_ms) : self._sample(segment.end_ms)]

    def _sample(self, ms: int) -> int:
        return round(ms * self.clip.rate / 1000)

    @property
    def _plugin(self) -> str:
        return self.served.hooks.owner

    @property
    def _floor(self) -> float:
        return self.served.chunk_policy.silence_floor


def _span(segment: Segment) -> Span:
    return segment.start_ms, segment.end_ms
