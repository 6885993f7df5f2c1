"""One clip on its way through the hooks: prepare, probe, encode, generate, review, perhaps again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import uuid4

from attrs import define, evolve, field, frozen

from asr_core.engines.protocol import EncodedRows, Engine, Finished, GenerationRequest, PromptInput
from asr_core.errors import EngineError, PluginError
from asr_core.loading import ServedModel
from asr_core.runtime.encode import encode, recognize
from asr_core.runtime.fold import fold
from asr_core.runtime.text import TokenText
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
    PromptPart,
    Recognized,
    Retry,
    Segment,
    Stretch,
    Tokens,
    TranscriptionRequest,
)

MAX_ROUNDS = 16
"""Calls of prepare_clip for one clip: a plugin that asks for more probes and retries than this is looping."""


@frozen(eq=False)
class ClipTranscript:
    """What became of one clip; segment times in milliseconds from its start.

    ``consumed_to`` (samples from the clip's start) is set when the rest is to be heard as a clip of its own.
    """

    clip: Clip
    text: str = ""
    segments: tuple[Segment, ...] = ()
    language: str | None = None
    speech: bool = True
    consumed_to: int | None = None
    note: str = ""
    guards: tuple[str, ...] = ()

    @property
    def stretch(self) -> Stretch:
        """The samples this accounts for."""
        end = self.clip.end_sample if self.consumed_to is None else self.clip.start_sample + self.consumed_to
        return Stretch(self.clip.start_sample, end, "decoded" if self.speech else "silent", self.note)


@define(eq=False)
class ClipTranscription:
    """Runs one clip; encoder rows are kept from one attempt to the next."""

    served: ServedModel
    clip: Clip
    request: TranscriptionRequest
    language: str | None
    guards: list[str] = field(factory=list)
    encoded: dict[AudioSpan, EncodedRows] = field(factory=dict)

    async def run(self) -> ClipTranscript:
        """Attempts until the plugin's review is content.

        Raises:
            PluginError: a hook failed, or the plugin would go on for ever.
            EngineError: generation failed.
        """
        if _is_silent(self.clip, self.served.chunk_policy.silence_floor):
            return ClipTranscript(self.clip, language=self.language, speech=False)
        context = ClipContext(language=self.language)
        for _ in range(MAX_ROUNDS):
            prepared = await self._prepare(context)
            if unanswered := [probe for probe in prepared.probes if probe.name not in context.probe_results]:
                answers = await self._answer(prepared, unanswered)
                context = evolve(context, probe_results={**context.probe_results, **answers})
                continue
            output = await self._produce(prepared)
            verdict = await self._review(output, prepared, context)
            if not isinstance(verdict, Retry):
                return self._accept(verdict, output, prepared)
            self.guards.append(f"decoded again: {verdict.reason}")
            context = evolve(context, attempt=context.attempt + 1, reason=verdict.reason)
        raise PluginError(f"{self._plugin}: one clip was prepared {MAX_ROUNDS} times without an answer")

    @property
    def _plugin(self) -> str:
        return self.served.hooks.owner

    async def _prepare(self, context: ClipContext) -> PreparedClip:
        hooks, model = self.served.hooks, self.served.model
        prepared = await asyncio.to_thread(hooks.prepare_clip, model, self.clip, self.request, context)
        self._check(prepared)
        return prepared

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
        request = GenerationRequest(
            id=uuid4().hex,
            prompt=self._resolve(prepared, probe.prompt),
            cross=self._cross(prepared),
            inspect=probe.token_ids,
        )
        async for item in self._engine().generate(request):
            if not isinstance(item, Finished):
                return item.inspected
        raise EngineError("the engine ended a probe without an answer")

    async def _produce(self, prepared: PreparedClip) -> ClipOutput:
        if self.served.engine is None:
            return await self._recognize(prepared)
        await self._encode(prepared.spans)
        return await self._generate(prepared)

    async def _encode(self, spans: Sequence[AudioSpan]) -> None:
        missing = [span for span in spans if span not in self.encoded]
        self.encoded.update(zip(missing, await encode(self.served, self.clip, missing), strict=True))

    async def _generate(self, prepared: PreparedClip) -> ClipOutput:
        text = self._text()
        for token in prepared.given:
            text.push(token)
        tokens: list[int] = []
        logprobs: list[float] = []
        finish: Finish | None = None
        async for item in self._engine().generate(self._generation(prepared)):
            if isinstance(item, Finished):
                finish = item.reason
                continue
            tokens.append(item.id)
            logprobs.append(item.logprob)
            if item.id not in prepared.stop:
                text.push(item.id, item.logprob)
        if finish is None:
            raise EngineError("the engine gave the request up")
        return await asyncio.to_thread(self._output, text, tokens, logprobs, prepared.given, finish)

    async def _recognize(self, prepared: PreparedClip) -> ClipOutput:
        results = await recognize(self.served, self.clip, prepared.spans)
        return await asyncio.to_thread(self._read, prepared.spans, results)

    def _read(self, spans: Sequence[AudioSpan], results: Sequence[Recognized]) -> ClipOutput:
        text = self._text()
        for span, result in zip(spans, results, strict=True):
            offset = round(1000 * span.start_sample / self.clip.rate)
            times = (offset + time for time in result.times)
            for token, logprob in zip(result.tokens, result.logprobs, strict=True):
                text.push(token, logprob, next(times, None))
        tokens = [token for result in results for token in result.tokens]
        logprobs = [logprob for result in results for logprob in result.logprobs]
        return self._output(text, tokens, logprobs, (), "stop")

    def _engine(self) -> Engine:
        if self.served.engine is None:
            raise PluginError(f"{self._plugin}: a model without a decoder cannot be probed")
        return self.served.engine

    def _text(self) -> TokenText:
        hooks, model = self.served.hooks, self.served.model
        return TokenText(lambda tokens, state, final, times: hooks.decode_tokens(model, tokens, state, final, times))

    def _generation(self, prepared: PreparedClip) -> GenerationRequest:
        return GenerationRequest(
            id=uuid4().hex,
            prompt=self._resolve(prepared, prepared.prompt),
            cross=self._cross(prepared),
            given=prepared.given,
            stop=prepared.stop,
            budget=prepared.budget,
            sampling=prepared.sampling,
            rules=prepared.rules,
        )

    def _cross(self, prepared: PreparedClip) -> EncodedRows | None:
        return None if prepared.cross is None else self.encoded[prepared.spans[prepared.cross]]

    def _resolve(self, prepared: PreparedClip, prompt: Sequence[PromptPart]) -> tuple[PromptInput, ...]:
        """The prompt with encoder rows in place of the slices that name them."""
        return tuple(self._slice(prepared, part) if isinstance(part, AudioSlice) else part for part in prompt)

    def _slice(self, prepared: PreparedClip, part: AudioSlice) -> EncodedRows:
        whole = self.encoded[prepared.spans[part.span]]
        place = part.first.to_bytes(4, "little") + part.count.to_bytes(4, "little")
        return EncodedRows(whole.rows[part.first : part.first + part.count], whole.key + place)

    def _output(
        self, text: TokenText, tokens: Sequence[int], logprobs: Sequence[float], given: Tokens, finish: Finish
    ) -> ClipOutput:
        text.close()
        folded = fold(text.fragments, round(1000 * self.clip.duration))
        return ClipOutput(tuple(tokens), tuple(logprobs), given, folded.text, folded.segments, folded.languages, finish)

    def _accept(self, verdict: Accept | NoSpeech, output: ClipOutput, prepared: PreparedClip) -> ClipTranscript:
        if isinstance(verdict, NoSpeech):
            return ClipTranscript(self.clip, language=self.language, speech=False, guards=tuple(self.guards))
        consumed = self._consumed(verdict)
        note = f"cut at the budget of {prepared.budget} tokens" if output.finish == "length" else ""
        return ClipTranscript(
            self.clip,
            output.text,
            self._segments(output, consumed),
            prepared.language or next(iter(output.languages), None),
            consumed_to=consumed,
            note=note,
            guards=(*self.guards, *([note] if note else [])),
        )

    def _segments(self, output: ClipOutput, consumed: int | None) -> tuple[Segment, ...]:
        """The segments, ending where the model stopped listening: what lies behind is heard again."""
        if consumed is None:
            return output.segments
        end_ms = round(1000 * consumed / self.clip.rate)
        if any(segment.start_ms >= end_ms for segment in output.segments):
            raise PluginError(f"{self._plugin}: text starts behind consumed_to, at {end_ms} ms, and would come twice")
        return tuple(evolve(segment, end_ms=min(segment.end_ms, end_ms)) for segment in output.segments)

    def _consumed(self, verdict: Accept) -> int | None:
        length = self.clip.end_sample - self.clip.start_sample
        if verdict.consumed_to is None or verdict.consumed_to == length:
            return None
        if not 0 < verdict.consumed_to < length:
            # Hearing the same samples again would never end.
            raise PluginError(f"{self._plugin}: consumed_to is {verdict.consumed_to}, must be in 1..{length}")
        return verdict.consumed_to


def _is_silent(clip: Clip, floor: float) -> bool:
    # By the extremes, without a copy as large as the clip; the initial value stands for a clip without samples.
    return bool(max(clip.samples.max(initial=0), -clip.samples.min(initial=0)) < floor)
