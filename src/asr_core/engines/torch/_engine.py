"""The embedded engine: requests share every forward, on the compute thread, and join and leave between tokens."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import CancelledError, Future

from attrs import asdict

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EngineStatistics, Finished, GeneratedToken, GenerationRequest
from asr_core.engines.torch._decoders import AttentiveDecoder, BranchingDecoder, Decoder
from asr_core.engines.torch._limits import DEFAULT_LIMITS, EngineLimits
from asr_core.engines.torch._runs import Item, Run
from asr_core.engines.torch._scheduler import Scheduler
from asr_core.engines.torch._stepper import Outcome, Stepper, as_engine_error
from asr_core.errors import DeadlineError, EngineError, EngineMismatchError, OverloadedError

logger = logging.getLogger(__name__)


class TorchEngine:
    """See :class:`~asr_core.engines.protocol.Engine`; ``release`` gives back, at the end, what was built for it."""

    def __init__(
        self,
        decoder: Decoder,
        compute: Compute,
        limits: EngineLimits = DEFAULT_LIMITS,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._stepper = Stepper(decoder)
        self._attentive = isinstance(decoder, AttentiveDecoder)
        self._branching = isinstance(decoder, BranchingDecoder) and decoder.branching
        self._compute = compute
        self._limits = limits
        self._release = release
        self._lock = threading.RLock()
        self._scheduler = Scheduler(limits)
        self._runs: dict[str, Run] = {}
        self._turning = False
        self._began: float | None = None
        self._closed = False  # takes nothing more
        self._released = False  # and has been closed, not just lost its compute thread
        self._counts = asdict(EngineStatistics())

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GeneratedToken | Finished, None]:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        items: asyncio.Queue[Item] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        run = self._enter(request, lambda item: _send(loop, items, item))
        try:
            while (item := await self._next(items, run)) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
                if isinstance(item, Finished):
                    return
        finally:
            self._abort(run)

    def abort(self, request_id: str) -> None:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            if run := self._runs.get(request_id):
                self._abort(run)

    def statistics(self) -> EngineStatistics:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            queued = self._scheduler.queued
            now = {"queued": queued, "running": len(self._runs) - queued, "steps": self._stepper.forwards}
            return EngineStatistics(**{**self._counts, **now})

    def health(self) -> str | None:
        """A turn that takes longer than ``step_timeout_s`` is hung until it returns."""
        began = self._began
        if began is not None and (seconds := time.monotonic() - began) > self._limits.step_timeout_s:
            return f"a step has been running for {seconds:.0f} s"
        return None

    def close(self) -> None:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            if self._released:
                return
            self._released = self._closed = True
            self._fail_all()
            turn = self._schedule()
        if turn is None or self._returned(turn):
            self._release()

    def _returned(self, turn: Future[None]) -> bool:
        """Whether nothing computes any more; a step that hangs still uses the memory."""
        try:
            turn.result(self._limits.step_timeout_s)
        except CancelledError:  # a compute thread that closed meanwhile has dropped it
            return True
        except TimeoutError:
            logger.error("a step hangs; its memory cannot be released")
            return False
        return True

    def _enter(self, request: GenerationRequest, send: Callable[[Item], bool]) -> Run:
        self._check(request)
        with self._lock:
            if self._closed:
                raise OverloadedError("the engine is closed", layer="engine")
            if request.id in self._runs:
                raise EngineError(f"a request with id {request.id!r} is running already")
            run = Run.of(request, self._limits.capacity, send)
            if run.late:
                self._count(expired=1)
                raise _deadline(run)
            self._queue(run)
            self._runs[request.id] = run
            if not self._turning:
                self._schedule()
            return run

    def _check(self, request: GenerationRequest) -> None:
        if request.attend and not self._attentive:
            raise EngineMismatchError("this model's decoder has no cross attention, so nothing can attend to any")
        if request.sampling.beam_size > 1:
            if not self._branching:
                raise EngineMismatchError("this model's decoder follows one text at a time, so no beam of several")
            if request.attend or request.inspect:
                raise EngineError("a beam of several is neither inspected nor attended")

    def _queue(self, run: Run) -> None:
        try:
            self._scheduler.add(run)
        except OverloadedError:
            self._count(refused=1)
            raise

    async def _next(self, items: asyncio.Queue[Item], run: Run) -> Item:
        """What comes next; a deadline is kept even while a step hangs."""
        deadline = run.request.deadline
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                return await items.get()
        except TimeoutError:
            self._end(run, _deadline(run), expired=1)
            return await items.get()

    def _abort(self, run: Run) -> None:
        with self._lock:
            run.aborted = True
            if run.slot is None:
                self._end(run, None, aborted=1)

    def _schedule(self) -> Future[None] | None:
        """Queue a turn, behind whatever other models and encoders have queued; the lock is held."""
        try:
            turn = self._compute.submit(self._turn)
        except OverloadedError:  # the compute thread was closed first
            self._closed = True
            self._fail_all()
            return None
        self._turning = True
        turn.add_done_callback(lambda done: self._fail_all() if done.cancelled() else None)
        return turn

    def _fail_all(self, error: EngineError | None = None) -> None:
        with self._lock:
            for run in list(self._runs.values()):
                self._end(run, error or OverloadedError("the engine was closed"), failed=1)

    def _turn(self) -> None:
        self._began = time.monotonic()
        try:
            self._advance()
        # Whatever this is, the requests must hear of it and the next turn must come.
        except BaseException as error:
            logger.exception("a turn of the engine failed")
            with self._lock:  # a request that comes meanwhile is not to blame
                for run in list(self._scheduler.running):
                    self._leave(run, as_engine_error(error), failed=1)
                self._fail_all(as_engine_error(error))
        finally:
            self._began = None
        with self._lock:
            self._turning = False
            if (self._runs or self._scheduler.running) and not self._closed:
                self._schedule()

    def _advance(self) -> None:
        self._sweep()
        with self._lock:
            self._count(reused=self._scheduler.admit())
            works = self._scheduler.plan()
        for outcome in self._stepper.step(works):
            self._settle(outcome)

    def _sweep(self) -> None:
        """Let those go who left, or ran out of time."""
        with self._lock:
            waiting, running = self._scheduler.waiting(), list(self._scheduler.running)
            if self._closed:
                self._fail_all()
            for run in waiting:
                if run.late:
                    self._end(run, _deadline(run), expired=1)
        for run in running:
            if run.late:
                self._leave(run, _deadline(run), expired=1)
            elif run.aborted or run.ended:
                self._leave(run, None, aborted=1)

    def _settle(self, outcome: Outcome) -> None:
        run, result = outcome.work.run, outcome.result
        if isinstance(result, EngineError):
            self._leave(run, result, failed=1)
            return
        with self._lock:
            self._scheduler.done(outcome.work)
            read = max(0, min(run.position, run.length) - outcome.work.row.start)
            self._count(rows=1, prefilled=read)
        for token in result:
            if not run.ended:
                self._deliver(run, token)

    def _deliver(self, run: Run, token: GeneratedToken) -> None:
        run.output.append(token.id)
        self._count(tokens=1)
        if not run.send(token):
            run.aborted = True
        if token.id in run.request.stop:
            self._leave(run, Finished("stop"), finished=1)
        elif run.generated >= run.budget:
            self._leave(run, Finished("length"), finished=1)

    def _leave(self, run: Run, item: Item, **way: int) -> None:
        """End a run that has a slot, and take the slot back; ``way`` is the counter of how it went."""
        keep = self._limits.keep_prefixes and "failed" not in way
        if not keep and run.slot is not None and (error := self._stepper.free(run.slot)):
            item, way = error, {"failed": 1}
        with self._lock:
            self._scheduler.vacate(run, keep=keep)
            self._end(run, item, **way)

    def _end(self, run: Run, item: Item, **way: int) -> None:
        """The last that is heard of ``run``; harmless for one that ended."""
        with self._lock:
            if run.ended:
                return
            run.ended = True
            del self._runs[run.request.id]
            self._scheduler.leave(run)
            self._count(**way)
        run.send(item)

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number


def _send(loop: asyncio.AbstractEventLoop, items: asyncio.Queue[Item], item: Item) -> bool:
    """Whether there is still a loop in which somebody could read it."""
    try:
        loop.call_soon_threadsafe(items.put_nowait, item)
    except RuntimeError:
        return False
    return True


def _deadline(run: Run) -> DeadlineError:
    return DeadlineError(f"the request {run.request.id!r} ran out of time")
