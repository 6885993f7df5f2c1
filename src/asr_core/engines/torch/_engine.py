"""The embedded engine: every running request advances by one token in turn, on the compute thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, wait

import torch
from attrs import define, evolve, field

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EncodedRows, EngineStatistics, Finished, GeneratedToken, GenerationRequest
from asr_core.engines.torch._decoders import Decoder, Row
from asr_core.engines.torch._sampling import apply_rules, choose
from asr_core.errors import EngineError, OverloadedError

logger = logging.getLogger(__name__)

Item = GeneratedToken | Finished | Exception | None
"""What a request's stream receives; None ends it without a result, after an abort."""


@define(eq=False)
class _Run:
    """A request on its way: what was decided so far and where the next token goes."""

    request: GenerationRequest
    slot: int
    send: Callable[[Item], bool]
    generator: torch.Generator
    output: list[int] = field(factory=list)
    position: int = 0
    aborted: bool = False

    @property
    def generated(self) -> int:
        return len(self.output) - len(self.request.given)

    def next_row(self) -> Row:
        if self.position == 0:
            parts = tuple(part.rows if isinstance(part, EncodedRows) else part for part in self.request.prompt)
            return Row(self.slot, 0, (*parts, self.request.given) if self.request.given else parts)
        return Row(self.slot, self.position, ((self.output[-1],),))


class TorchEngine:
    """Requests join and leave between tokens; one that fails leaves the others alone."""

    def __init__(self, decoder: Decoder, compute: Compute) -> None:
        self._decoder = decoder
        self._compute = compute
        self._lock = threading.RLock()
        self._runs: dict[str, _Run] = {}
        self._turning = False
        self._closed = False
        self._statistics = EngineStatistics()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GeneratedToken | Finished]:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        items: asyncio.Queue[Item] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._admit(request, lambda item: _send(loop, items, item))
        try:
            while (item := await items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
                if isinstance(item, Finished):
                    return
        finally:
            self.abort(request.id)

    def abort(self, request_id: str) -> None:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            if run := self._runs.get(request_id):
                run.aborted = True

    def statistics(self) -> EngineStatistics:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            return evolve(self._statistics, running=len(self._runs))

    def health(self) -> str | None:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        return None

    def close(self) -> None:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            turn = self._schedule()
        if turn is not None:
            wait([turn])
            self._fail_all()  # what a compute thread that closed meanwhile has dropped

    def _admit(self, request: GenerationRequest, send: Callable[[Item], bool]) -> None:
        with self._lock:
            if self._closed:
                raise OverloadedError("the engine is closed", layer="engine")
            if request.id in self._runs:
                raise EngineError(f"a request with id {request.id!r} is running already")
            taken = {run.slot for run in self._runs.values()}
            slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            generator = torch.Generator().manual_seed(request.sampling.seed)
            self._runs[request.id] = _Run(request, slot, send, generator, list(request.given))
            if not self._turning:
                self._schedule()

    def _schedule(self) -> Future[None] | None:
        """Queue a turn, behind whatever other models and encoders have queued; the lock is held."""
        try:
            turn = self._compute.submit(self._turn)
        except OverloadedError:  # the compute thread was closed first
            self._closed = True
            self._fail_all()
            return None
        self._turning = True
        return turn

    def _fail_all(self) -> None:
        with self._lock:
            for run in list(self._runs.values()):
                self._end(run, OverloadedError("the engine was closed"), failed=1)

    def _turn(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            self._advance(run)
        with self._lock:
            self._turning = False
            if self._runs:
                self._schedule()

    def _advance(self, run: _Run) -> None:
        if self._closed:
            self._end(run, OverloadedError("the engine was closed"), failed=1)
        elif run.aborted:
            self._end(run, None, aborted=1)
        else:
            try:
                self._step(run)
            # Whatever a module raises, SystemExit included, must not end the turns of all others.
            except BaseException as error:
                self._end(run, _as_engine_error(error), failed=1)

    def _step(self, run: _Run) -> None:
        if run.position == 0 and run.request.cross is not None:
            self._decoder.bind(run.slot, run.request.cross.rows)
        row = run.next_row()
        logits = self._decoder.extend([row])
        run.position += sum(len(part) for part in row.parts)
        inspected = self._inspect(run, logits[0])
        logits = apply_rules(run.request.rules, [run.output], logits)
        token, logprob = choose(logits[0], run.request.sampling, run.generator)
        run.output.append(token)
        with self._lock:
            self._statistics = evolve(self._statistics, tokens=self._statistics.tokens + 1)
        if not run.send(GeneratedToken(token, logprob, inspected)):
            run.aborted = True
        if token in run.request.stop:
            self._end(run, Finished("stop"), finished=1)
        elif run.generated >= run.request.budget:
            self._end(run, Finished("length"), finished=1)

    def _inspect(self, run: _Run, logits: torch.Tensor) -> tuple[float, ...]:
        if run.generated or not run.request.inspect:
            return ()
        return tuple(logits.log_softmax(-1)[list(run.request.inspect)].tolist())

    def _end(self, run: _Run, item: Item, *, finished: int = 0, failed: int = 0, aborted: int = 0) -> None:
        try:
            self._decoder.free(run.slot)
        except Exception as error:
            logger.exception("freeing slot %d failed", run.slot)
            item = _as_engine_error(error)
        with self._lock:
            if self._runs.pop(run.request.id, None) is None:
                return
            now = self._statistics
            self._statistics = evolve(
                now, finished=now.finished + finished, failed=now.failed + failed, aborted=now.aborted + aborted
            )
        run.send(item)


def _send(loop: asyncio.AbstractEventLoop, items: asyncio.Queue[Item], item: Item) -> bool:
    """Whether there is still a loop in which somebody could read it."""
    try:
        loop.call_soon_threadsafe(items.put_nowait, item)
    except RuntimeError:
        return False
    return True


def _as_engine_error(error: BaseException) -> EngineError:
    if isinstance(error, EngineError):
        return error
    wrapped = EngineError(f"generation failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error.with_traceback(None)  # a traceback would keep the step's tensors alive
    return wrapped
