"""One clip on its way through the hooks: prepare, probe, encode, generate, review, perhaps again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from asr_core.engines.protocol import EncodedRows, Engine, Finished
from asr_core.errors import EngineError, PluginError
from asr_core.ledger import ClipTranscript, Ledger
from asr_core.loading import ServedModel
from asr_core.runtime.requests import generation_request, probe_request
from asr_core.runtime.stream import ClipText, CommitRule
from asr_core.speech import Voice, is_silent
from asr_core.types import (
    Accept,
    Ask,
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
    TranscriptionRequest,
    Usage,
    Word,
)
from asr_core.words import align_text, find_words, keep_in_order

__all__ = ["ClipTranscript", "ClipTranscription"]

WITHOUT_PREVIOUS = Retry("repeats itself behind the text of the clip before")
"""Comes before any retry of the plugin's, which is not told."""

LOOP_EVERY = 16
"""Tokens from one look for a loop to the next."""

MAX_ROUNDS = 16
"""Calls of prepare_clip with nothing committed between, and of review_output for one output: a plugin that asks for
more probes and retries is looping."""


@define(eq=False)
class ClipTranscription:
    """Runs one clip; encoder rows and committed text are kept from one attempt to the next.

    ``caller`` is in whose name the engine's turns are taken. ``send`` gets the text as it is committed, and
    ``tell`` the segments that end with it; in the end all of the text, stripped, is the transcript's. ``previous_text``
    is that of the clip before. A clip is ``retaken`` after a first transcript that ended early.
    """

    served: ServedModel
    clip: Clip
    request: TranscriptionRequest
    language: str | None
    caller: str
    send: Callable[[str], None]
    tell: Callable[[tuple[Segment, ...]], None]
    previous_text: str = ""
    retaken: bool = False
    encoded: dict[AudioSpan, EncodedRows] = field(factory=dict)
    _answers: dict[str, tuple[float, ...]] = field(init=False, factory=dict)
    _usage: Usage = field(init=False, default=Usage())
    _commit: CommitRule = field(init=False)
    _text: ClipText = field(init=False)
    _ledger: Ledger = field(init=False)

    def __attrs_post_init__(self) -> None:
        hooks, model = self.served.hooks, self.served.model
        self._commit = CommitRule.of(hooks, model)
        self._text = ClipText(
            lambda tokens, state, final, times: hooks.decode_tokens(model, tokens, state, final, times),
            round(1000 * self.clip.duration),
            self.send,
            self.tell,
        )
        self._ledger = Ledger(self.served, self.clip, self._text, self.retaken)

    async def run(self) -> ClipTranscript:
        """Attempts until the plugin's review is content.

        Raises:
            PluginError: a hook failed, or the plugin would go on for ever.
            EngineError: generation failed.
        """
        if is_silent(self.clip.samples, self.served.chunk_policy.silence_floor):
            return self._ledger.silent()
        transcript = await self._attempts()
        rows = sum(span.tokens for span in self.encoded)
        return evolve(transcript, usage=self._usage + Usage(audio_tokens=rows))

    async def _attempts(self) -> ClipTranscript:
        context, rounds = ClipContext(language=self.language, previous_text=self.previous_text), 0
        while (rounds := rounds + 1) <= MAX_ROUNDS:
            prepared = await self._prepare(context)
            if unanswered := [probe for probe in prepared.probes if probe.name not in self._answers]:
                await self._answer(prepared, unanswered)
                continue
            result = await self._attempt(prepared, context)
            if isinstance(result, ClipTranscript):
                return result
            self._ledger.report("retry", result.reason)
            if result is WITHOUT_PREVIOUS:
                context = evolve(context, previous_text="", hypothesis=self._text.committed)
                continue
            if self._text.committed != context.hypothesis:
                rounds, context = 0, evolve(context, attempt=0, hypothesis=self._text.committed)
            context = evolve(context, attempt=context.attempt + 1, reason=result.reason)
        raise PluginError(f"{self._plugin}: one clip was prepared {MAX_ROUNDS} times without an answer")

    @property
    def _plugin(self) -> str:
        return self.served.hooks.owner

    async def _prepare(self, context: ClipContext) -> PreparedClip:
        hooks, model = self.served.hooks, self.served.model
        prepared = await asyncio.to_thread(hooks.prepare_clip, model, self.clip, self.request, self._known(context))
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

    def _known(self, context: ClipContext) -> ClipContext:
        return evolve(context, probe_results=dict(self._answers))

    async def _review(
        self, output: ClipOutput, prepared: PreparedClip, context: ClipContext
    ) -> Accept | Retry | NoSpeech:
        hooks, model = self.served.hooks, self.served.model
        for _ in range(MAX_ROUNDS):
            known = self._known(context)
            verdict = await asyncio.to_thread(
                hooks.review_output, model, output, self.clip, prepared, self.request, known
            )
            if not isinstance(verdict, Ask):
                return verdict
            await self._answer(prepared, verdict.probes)
        raise PluginError(f"{self._plugin}: one review asked {MAX_ROUNDS} times")

    async def _answer(self, prepared: PreparedClip, probes: Sequence[Probe]) -> None:
        await self._encode(prepared.spans)
        for probe in probes:
            self._answers[probe.name] = await self._probe(prepared, probe)

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
        if context.previous_text and (self._text.loop_start() or 0) > 0:
            return WITHOUT_PREVIOUS
        verdict = await self._review(output, prepared, context)
        if isinstance(verdict, Retry):
            return verdict
        if isinstance(verdict, NoSpeech):
            return self._ledger.no_speech(prepared)
        floor = self.served.chunk_policy.silence_floor
        voice = await asyncio.to_thread(Voice.of, self.clip.samples, self.clip.rate, floor)
        transcript = self._ledger.accept(verdict, finish, prepared, voice)
        return evolve(transcript, words=await self._words(transcript, prepared, finish))

    async def _words(self, transcript: ClipTranscript, prepared: PreparedClip, finish: Finish) -> tuple[Word, ...]:
        if "word" not in self.request.times or not transcript.text:
            return ()
        heard = transcript.heard
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
                if self._usage.output_tokens % LOOP_EVERY == 0 and self._text.loop_start() is not None:
                    return "loop"
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
        by_segment = self._commit.policy.commit == "segment"
        if by_segment:
            self._ledger.drop_unheard()
        self._text.commit(by_segment=by_segment)
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
