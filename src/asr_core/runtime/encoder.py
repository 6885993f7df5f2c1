"""From spans to what the model makes of them: found, joined, or computed in batches on the compute thread."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from attrs import frozen

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EncodedRows
from asr_core.model_hooks import ModelHooks
from asr_core.runtime._batches import Address, Flight
from asr_core.runtime._encoder_cache import digest, place
from asr_core.runtime._encoder_worker import EncoderWorker
from asr_core.runtime._flights import EncoderStatistics, Flights
from asr_core.runtime._span_calls import EncodeCall, RecognizeCall, SpanCall
from asr_core.types import AudioSpan, Clip, EncoderPolicy, Feature, LoadedModel, Recognized

__all__ = ["EncoderService", "EncoderStatistics"]


@frozen(eq=False)
class _Ticket:
    """Where a waiter finds the output of a span."""

    address: Address
    output: Future[Any]

    async def wait(self) -> Any:
        # The work is the service's: a waiter that is cancelled must not cancel it for the others.
        return await asyncio.shield(asyncio.wrap_future(self.output))


class EncoderService:
    """The encoder of one loaded model, for any number of requests on any number of event loops.

    A look-up and the registration of what it misses are one step, so nothing is computed twice at the same time.
    ``generates`` tells whether spans become rows for a decoder, or are recognised at once.
    """

    def __init__(
        self, hooks: ModelHooks, model: LoadedModel, policy: EncoderPolicy, compute: Compute, *, generates: bool
    ) -> None:
        self._hooks = hooks
        self._model = model
        call: SpanCall = EncodeCall(hooks, model) if generates else RecognizeCall(hooks, model)
        self._newcomers = compute.newcomers
        self._flights = Flights(policy, compute.newcomers.changed)
        self._worker = EncoderWorker(hooks.owner, call, policy, self._flights, compute)

    async def encode(self, clip: Clip, spans: Sequence[AudioSpan]) -> list[EncodedRows]:
        """Rows of shape [span.tokens, width] per span, in host memory, keyed by features and number of rows.

        Raises:
            PluginError: a hook raised, or the rows are not as many or not of the kind that was promised.
            EngineError: the encoder ran out of memory, or died.
            DeadlineError: a call took longer than the policy allows.
            OverloadedError: the queue is full, an earlier call hangs, or the service is closed.
        """
        return [
            EncodedRows(rows, digest + tokens.to_bytes(4, "little"))
            for (digest, tokens), rows in await self._outputs(clip, spans)
        ]

    async def recognize(self, clip: Clip, spans: Sequence[AudioSpan]) -> list[Recognized]:
        """Tokens per span, of a model that does not generate; raises as :meth:`encode` does."""
        return [recognized for _, recognized in await self._outputs(clip, spans)]

    def statistics(self) -> EncoderStatistics:
        """Counters at this moment."""
        return self._flights.statistics()

    def health(self) -> str | None:
        """None while all is well, else that a call hangs, until it comes back."""
        return self._worker.trouble

    def close(self) -> None:
        """Let the running batch finish, fail what waits, refuse what comes; harmless twice."""
        self._worker.close()
        with self._flights.lock:
            self._flights.cache.clear()

    async def _outputs(self, clip: Clip, spans: Sequence[AudioSpan]) -> list[tuple[Address, Any]]:
        tickets = self._find(clip, spans)
        try:
            missing = tuple(span for span in dict.fromkeys(spans) if span not in tickets)
            if missing:
                features = await asyncio.to_thread(self._extract, clip, missing)
                tickets |= self._admit(clip, features)
            return [(tickets[span].address, await tickets[span].wait()) for span in spans]
        finally:
            for ticket in tickets.values():
                self._flights.leave(ticket.address, ticket.output)

    def _find(self, clip: Clip, spans: Sequence[AudioSpan]) -> dict[AudioSpan, _Ticket]:
        """Tickets of the spans whose features are known, and their outputs kept or on their way."""
        tickets: dict[AudioSpan, _Ticket] = {}
        with self._flights.lock:
            self._worker.check_open()
            for span in dict.fromkeys(spans):
                known = self._flights.cache.digest_at(place(clip, span))
                if known is not None and (output := self._flights.join((known, span.tokens))):
                    tickets[span] = _Ticket((known, span.tokens), output)
        return tickets

    def _extract(self, clip: Clip, spans: tuple[AudioSpan, ...]) -> dict[AudioSpan, tuple[Address, Feature]]:
        features = self._hooks.extract_features(self._model, clip, spans)
        return {span: ((digest(feature), span.tokens), feature) for span, feature in zip(spans, features, strict=True)}

    def _admit(self, clip: Clip, features: Mapping[AudioSpan, tuple[Address, Feature]]) -> dict[AudioSpan, _Ticket]:
        """Join what is kept or on its way by now and launch the rest: all of it or, when it is too much, nothing."""
        tickets: dict[AudioSpan, _Ticket] = {}
        with self._flights.lock:
            self._worker.check_open()
            caller = id(clip.waveform)
            # Further clips of its own, which it begins while it is alone, are not what a newcomer waits for.
            newcomer = self._newcomers.hear(clip.waveform) and not self._flights.of(caller)
            if self._flights.missing(address for address, _ in features.values()):
                self._worker.ensure()
            for span, (address, feature) in features.items():
                self._flights.cache.learn(place(clip, span), address[0])
                output = self._flights.join(address) or self._flights.launch(
                    Flight(address, feature, span.cost, caller, newcomer)
                )
                tickets[span] = _Ticket(address, output)
        return tickets
