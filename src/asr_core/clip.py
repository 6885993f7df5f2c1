"""One clip on its way through the hooks: prepare, probe, encode, generate, review, perhaps again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve, field, frozen

from asr_core.engines.protocol import EncodedRows, Engine, Finished
from asr_core.errors import EngineError, PluginError
from asr_core.loading import ServedModel
from asr_core.runtime.fold import Folded
from asr_core.runtime.requests import generation_request, probe_request
from asr_core.runtime.stream import ClipText, CommitRule
from asr_core.speech import is_silent, unvoiced_share
from asr_core.types import (
    Accept,
    AudioSlice,
    AudioSpan,
    Clip,
    ClipContext,
    ClipOutput,
    Finish,
    NoSpeech,
    PreparedClip,
    Probe,
    Recognized,
    Retry,
    Segment,
    SpokenToken,
    Stretch,
    TranscriptionRequest,
    Usage,
    Word,
)
from asr_core.words import align_text, find_words, keep_in_order

MAX_ROUNDS = 16
"""Calls of prepare_clip with nothing committed between: a plugin that asks for more probes and retries is looping."""


@frozen(eq=False)
class ClipTranscript:
    """What became of one clip; times of segments and words in milliseconds from its start.

    ``consumed_to`` (samples from the clip's start) is set when the rest is to be heard as a clip of its own.
    """

    clip: Clip
    text: str = ""
    segments: tuple[Segment, ...] = ()
    language: str | None = None
    words: tuple[Word, ...] = ()
    tokens: tuple[SpokenToken, ...] = ()
    speech: bool = True
    consumed_to: int | None = None
    note: str = ""
    guards: tuple[str, ...] = ()
    usage: Usage = Usage()

    @property
    def stretch(self) -> Stretch:
        """The samples this accounts for."""
        end = self.clip.end_sample if self.consumed_to is None else self.clip.start_sample + self.consumed_to
        return Stretch(self.clip.start_sample, end, "decoded" if self.speech else "silent", self.note)


@define(eq=False)
class ClipTranscription:
    """Runs one clip; encoder rows and committed text are kept from one attempt to the next.

    ``caller`` is in whose name the engine's turns are taken. ``send`` gets the text as it is committed, and
    ``tell`` the segments that end with it; in the end all of the text, stripped, is the transcript's.
    """

    served: ServedModel
    clip: Clip
    request: TranscriptionRequest
    language: str | None
    caller: str
    send: Callable[[str], None]
    tell: Callable[[tuple[Segment, ...]], None]
    guards: list[str] = field(factory=list)
    encoded: dict[AudioSpan, EncodedRows] = field(factory=dict)
    _usage: Usage = field(init=False, default=Usage())
    _commit: CommitRule = field(init=False)
    _text: ClipText = field(init=False)

    def __attrs_post_init__(self) -> None:
        hooks, model = self.served.hooks, self.served.model
        self._commit = CommitRule.of(hooks, model)
        self._text = ClipText(
            lambda tokens, state, final, times: hooks.decode_tokens(model, tokens, state, final, times),
            round(1000 * self.clip.duration),
            self.send,
            self.tell,
        )

    async def run(self) -> ClipTranscript:
        """Attempts until the plugin's review is content.

        Raises:
            PluginError: a hook failed, or the plugin would go on for ever.
            EngineError: generation failed.
        """
        if is_silent(self.clip.samples, self.served.chunk_policy.silence_floor):
            return ClipTranscript(self.clip, language=self.language, speech=False)
        transcript = await self._attempts()
        rows = sum(span.tokens for span in self.encoded)
        return evolve(transcript, usage=self._usage + Usage(audio_tokens=rows))

    async def _attempts(self) -> ClipTranscript:
        context, rounds = ClipContext(language=self.language), 0
        while (rounds := rounds + 1) <= MAX_ROUNDS:
            prepared = await self._prepare(context)
            if unanswered := [probe for probe in prepared.probes if probe.name not in context.probe_results]:
                answers = await self._answer(prepared, unanswered)
                context = evolve(context, probe_results={**context.probe_results, **answers})
                continue
            result = await self._attempt(prepared, context)
            if isinstance(result, ClipTranscript):
                return result
            self.guards.append(f"decoded again: {result.reason}")
            if self._text.committed != context.hypothesis:
                rounds, context = 0, evolve(context, attempt=0, hypothesis=self._text.committed)
            context = evolve(context, attempt=context.attempt + 1, reason=result.reason)
        raise PluginError(f"{self._plugin}: one clip was prepared {MAX_ROUNDS} times without an answer")

    @property
    def _plugin(self) -> str:
        return self.served.hooks.owner

    async def _prepare(self, context: ClipContext) -> PreparedClip:
        hooks, model = self.served.hooks, self.served.model
        prepared = await asyncio.to_thread(hooks.prepare_clip, model, self.clip, self.request, context)
        self._check(prepared)
        if not (committed := self._text.committed):
            return prepared
        room = max(1, prepared.budget + len(prepared.given) - len(committed))
        return evolve(prepared, given=committed, budget=room)

    def _check(self, prepared: PreparedClip) -> None:
        for span in prepared.spans:
            if not 0 <= span.start_sample <= span.end_sample <= self.clip.end_sample - self.clip.start_sample:
                raise PluginError(f"{self._plugin}: {span} does not lie in its clip")
        if self.served.engine is not None and not (prepared.budget > 0 and prepared.stop):
            raise PluginError(f"{self._plugin}: a model that generates needs a budget and a stop token")

    async def _review(
        self, output: ClipOutput, prepared: PreparedClip, context: ClipContext
    ) -> Accept | Retry | NoSpeech:
        hooks, model = self.served.hooks, self.served.model
        return await asyncio.to_thread(hooks.review_output, model, output, self.clip, prepared, self.request, context)

    async def _answer(self, prepared: PreparedClip, probes: Sequence[Probe]) -> Mapping[str, tuple[float, ...]]:
        await self._encode(prepared.spans)
        return {probe.name: await self._probe(prepared, probe) for probe in probes}

    async def _probe(self, prepared: PreparedClip, probe: Probe) -> tuple[float, ...]:
        engine, request = self._engine(), probe_request(prepared, probe, self.encoded, self.caller)
        try:
            async for item in engine.generate(request):
                if not isinstance(item, Finished):
                    return item.inspected
        finally:
            # An iterator that is left is closed whenever the loop gets round to it.
            engine.abort(request.id)
        raise EngineError("the engine ended a probe without an answer")

    async def _attempt(self, prepared: PreparedClip, context: ClipContext) -> ClipTranscript | Retry:
        finish: Finish | Retry = "stop"
        self._text.begin(prepared.given)
        if self.served.engine is None:
            await self._recognize(prepared)
        else:
            await self._encode(prepared.spans)
            finish = await self._generate(prepared, context)
        if isinstance(finish, Retry):
            return finish
        output = await asyncio.to_thread(self._text.close, finish)
        verdict = await self._review(output, prepared, context)
        if isinstance(verdict, Retry):
            return verdict
        transcript = self._accept(verdict, output, prepared)
        return evolve(transcript, words=await self._words(transcript, prepared, finish))

    async def _words(self, transcript: ClipTranscript, prepared: PreparedClip, finish: Finish) -> tuple[Word, ...]:
        if "word" not in self.request.times or not transcript.text:
            return ()
        heard = Clip(self.clip.waveform, self.clip.start_sample, transcript.stretch.end_sample)
        if (aligner := self.served.aligner) is not None:
            words = await align_text(self.served, aligner, heard, transcript.text, transcript.language)
        else:
            whole = self._text.whole(finish)
            words = await find_words(self.served, self.clip, whole, prepared, self.encoded, self.caller)
        return keep_in_order(words, round(1000 * heard.duration))

    async def _encode(self, spans: Sequence[AudioSpan]) -> None:
        missing = [span for span in spans if span not in self.encoded]
        self.encoded.update(zip(missing, await self.served.encoder.encode(self.clip, missing), strict=True))

    async def _generate(self, prepared: PreparedClip, context: ClipContext) -> Finish | Retry:
        engine, request = self._engine(), generation_request(prepared, self.encoded, self.caller)
        text = sum(len(part) for part in prepared.prompt if not isinstance(part, AudioSlice))
        self._usage += Usage(text_tokens=text + len(prepared.given))
        try:
            async for item in engine.generate(request):
                if isinstance(item, Finished):
                    return item.reason
                self._usage += Usage(output_tokens=1)
                self._text.take(item.id, item.logprob, spoken=item.id not in prepared.stop)
                if retry := await self._advance(prepared, context):
                    return retry
        finally:
            engine.abort(request.id)  # as above
        raise EngineError("the engine gave the request up")

    async def _advance(self, prepared: PreparedClip, context: ClipContext) -> Retry | None:
        """Commit what can be while generation goes on, or say why it has to begin again."""
        if not self._commit.is_due(self._text):
            return None
        if self._commit.reviewed:
            verdict = await self._review(self._text.output(), prepared, context)
            if isinstance(verdict, Retry):
                return verdict
            if isinstance(verdict, NoSpeech):
                return None
            if verdict.consumed_to is not None:
                raise PluginError(f"{self._plugin}: consumed_to is {verdict.consumed_to} while the model still listens")
        self._text.commit(by_segment=self._commit.policy.commit == "segment")
        return None

    async def _recognize(self, prepared: PreparedClip) -> None:
        results = await self.served.encoder.recognize(self.clip, prepared.spans)
        await asyncio.to_thread(self._read, prepared.spans, results)

    def _read(self, spans: Sequence[AudioSpan], results: Sequence[Recognized]) -> None:
        for span, result in zip(spans, results, strict=True):
            offset = round(1000 * span.start_sample / self.clip.rate)
            times = (offset + time for time in result.times)
            for token, logprob in zip(result.tokens, result.logprobs, strict=True):
                self._text.take(token, logprob, time=next(times, None))
            self._usage += Usage(audio_tokens=span.tokens, output_tokens=len(result.tokens))

    def _engine(self) -> Engine:
        if self.served.engine is None:
            raise PluginError(f"{self._plugin}: a model without a decoder cannot be probed")
        return self.served.engine

    def _accept(self, verdict: Accept | NoSpeech, output: ClipOutput, prepared: PreparedClip) -> ClipTranscript:
        if isinstance(verdict, NoSpeech):
            return self._dropped(prepared)
        no_speech = verdict.no_speech_prob
        note = f"cut at the budget of {prepared.budget} tokens" if output.finish == "length" else ""
        self.guards += [note] if note else []
        folded, consumed = self._text.folded(), self._consumed(verdict)
        folded = evolve(folded, segments=self._segments(folded, consumed))
        transcript = self._transcript(folded, prepared, no_speech)
        self._text.commit()
        return evolve(transcript, consumed_to=consumed, note=note)

    def _dropped(self, prepared: PreparedClip) -> ClipTranscript:
        self._text.drop()
        folded = self._text.folded()
        if not folded.text:
            return ClipTranscript(self.clip, language=self.language, speech=False, guards=tuple(self.guards))
        self.guards.append("text behind what was sent is dropped: nobody spoke there")
        return self._transcript(folded, prepared)

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
            self.clip, folded.text, segments, language, tokens=self._text.spoken(), guards=tuple(self.guards)
        )

    def _unvoiced(self, segment: Segment) -> float:
        start, end = (round(ms * self.clip.rate / 1000) for ms in (segment.start_ms, segment.end_ms))
        floor = self.served.chunk_policy.silence_floor
        return unvoiced_share(self.clip.samples[start:end], self.clip.rate, floor)

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
