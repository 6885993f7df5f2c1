"""The worker of an encoder service: it sends one turn at a time to the compute thread and watches the clock."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from typing import Any

from attrs import define

from asr_core.engines.compute import Compute
from asr_core.errors import AsrError, DeadlineError, OverloadedError, PluginError
from asr_core.runtime._batches import Flight
from asr_core.runtime._failures import detach, is_crash, typed
from asr_core.runtime._flights import Flights
from asr_core.runtime._span_calls import SpanCall
from asr_core.types import EncoderPolicy

logger = logging.getLogger(__name__)

REST = 4.0
"""Seconds that the others' encoding rests for each that it takes while a newcomer is at work: with a fifth of the time
a long upload comes on beside short ones without end, and a newcomer takes a quarter longer and not twice as long."""


@define(eq=False)
class Batch:
    """Flights that are computed together; ``parts`` has taken ``seconds``, of which the processor ``computed``."""

    flights: Sequence[Flight]
    parts: Generator[None, None, list[Any]]
    seconds: float = 0.0
    computed: float = 0.0

    @property
    def newcomers(self) -> bool:
        """Whether it is one of newcomers."""
        return self.flights[0].newcomer

    @property
    def callers(self) -> set[int]:
        """Whose it is."""
        return {flight.caller for flight in self.flights}


class EncoderWorker:
    """A thread that lives while something waits; batches are made when the compute thread is ready for them.

    A batch of newcomers is computed in one turn. One of the others is suspended between two of its parts when newcomers
    come, whose batches go first, and gets a turn for a part now and then as long as they are there. ``owner`` is the
    plugin's name for messages.
    """

    def __init__(self, owner: str, call: SpanCall, policy: EncoderPolicy, flights: Flights, compute: Compute) -> None:
        self._owner = owner
        self._call = call
        self._policy = policy
        self._flights = flights
        self._compute = compute
        self._thread: threading.Thread | None = None
        self._suspended: Batch | None = None
        self._rested_at = 0.0
        self._others_next = False
        self._closed = False
        self.trouble: str | None = None
        """What hangs, until it comes back."""

    def check_open(self) -> None:
        """Raise OverloadedError when nothing would be computed."""
        if self._closed:
            raise OverloadedError("the encoder is closed", layer="encoder")
        if self.trouble:
            raise OverloadedError(self.trouble, layer="encoder")

    def ensure(self) -> None:
        """See to it that a worker lives; the lock of the flights is held, and what it shall find follows."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="asr-encoder", daemon=True)
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Let what was begun finish, unless it hangs, and fail what waits."""
        with self._flights.lock:
            self._closed = True
            thread = None if self.trouble else self._thread
            self._flights.fail_waiting(OverloadedError("the encoder was closed", layer="encoder"))
        if thread is not None:
            thread.join()

    # On its own thread

    def _work(self) -> None:
        try:
            while self._due():
                self._watch(self._compute.submit(self._turn))
        except BaseException as error:
            self._give_up(error)

    def _due(self) -> bool:
        """Wait for a turn to be due; if there is nothing to do, the next request starts a new thread."""
        with self._flights.lock:
            while 0 < (rest := min(self._due_in())) < math.inf:
                self._flights.lock.wait(rest)
            if rest == 0:
                return True
            self._thread = None
            return False

    def _due_in(self) -> tuple[float, float]:
        """Seconds until there is a turn for newcomers, and one for the others; the lock is held."""
        now = time.monotonic()
        newcomers, others = (self._flights.due_in(now, newcomers=kind) for kind in (True, False))
        if self._suspended is not None:
            others = 0.0
        return newcomers, max(others, self._rest(now))

    def _rest(self, now: float) -> float:
        """Seconds that the others stand aside: newcomers are at work, and they have had their share."""
        batch = self._suspended
        callers = self._flights.callers(newcomers=False) if batch is None else batch.callers
        if self._closed or self._compute.newcomers.since(besides=callers) is None:
            return 0.0
        return max(0.0, self._rested_at - now)

    def _watch(self, turn: Future[None]) -> None:
        try:
            turn.result(self._policy.timeout_s)
        except TimeoutError:
            self._expire()
            if not self._closed:
                turn.result()
                self.trouble = None
                logger.warning("%s: the encoder call that hung has come back", self._owner)

    def _expire(self) -> None:
        with self._flights.lock:
            self.trouble = f"{self._owner}: an encoder call has not returned for {self._policy.timeout_s:g} s"
            self._flights.count(expired=1)
            suspended = self._abandon(DeadlineError(self.trouble, layer="encoder"))
        logger.error("%s", self.trouble)
        self._end(suspended)

    def _give_up(self, error: BaseException) -> None:
        """Dies of something that is not the plugin's, such as a compute thread that was closed first."""
        logger.error("%s: the encoder's worker ended\n%s", self._owner, detach(error))
        failure = typed(error, f"{self._owner}: encoding failed")
        with self._flights.lock:
            self._thread, self.trouble = None, None
            self._flights.count(crashes=not isinstance(failure, OverloadedError))
            suspended = self._abandon(failure)
        self._end(suspended)

    def _abandon(self, error: AsrError) -> Batch | None:
        """Fail all there is; what is suspended will have no further turn, and is to be ended without the lock."""
        suspended, self._suspended = self._suspended, None
        self._flights.fail_all(error)
        return suspended

    def _end(self, suspended: Batch | None) -> None:
        try:
            if suspended is not None:
                suspended.parts.close()
        except BaseException as error:
            logger.error("%s: ending a batch failed\n%s", self._owner, detach(error))

    # On the compute thread

    def _turn(self) -> None:
        batch = self._pick()
        if batch is None:
            return
        try:
            outputs = self._advance(batch)
        # Whatever a module raises, SystemExit included, must not end the turns of all others.
        except BaseException as error:
            self._fail(batch.flights, error)
            return
        if outputs is None:
            return
        self._flights.took(batch.flights, batch.computed)
        for flight, output in zip(batch.flights, outputs, strict=True):
            self._land(flight, output)

    def _pick(self) -> Batch | None:
        """What is due by now, which may be nothing any more, or another than when the turn was asked for."""
        with self._flights.lock:
            newcomers, others = self._due_in()
            if newcomers == 0 and not (self._others_next and others == 0):
                self._others_next = True
                return self._form(newcomers=True)
            if others > 0:
                return None
            self._others_next = False
            batch, self._suspended = self._suspended, None
            return batch or self._form(newcomers=False)

    def _form(self, *, newcomers: bool) -> Batch | None:
        flights = self._flights.take(newcomers=newcomers)
        return Batch(flights, self._call.run([flight.feature for flight in flights])) if flights else None

    def _advance(self, batch: Batch) -> list[Any] | None:
        """Outputs of its flights; None when it was suspended, or ended as they all had failed meanwhile."""
        while self._flights.flying(batch.flights):
            self._check_time(batch)
            # Processor time, as a wait for anything else is not the batch's; a thread that waits for a GPU spins.
            began, computed = time.monotonic(), time.thread_time()
            try:
                next(batch.parts)
            except StopIteration as end:
                outputs: list[Any] = end.value
                return outputs
            finally:
                batch.computed += time.thread_time() - computed
                crowded = self._makes_room(batch, began)
            if crowded:
                with self._flights.lock:
                    self._suspended = batch
                return None
        batch.parts.close()
        return None

    def _makes_room(self, batch: Batch, began: float) -> bool:
        """Whether there are newcomers the rest of ``batch`` waits for; what it took of their time, it rests for."""
        now = time.monotonic()
        batch.seconds += now - began
        since = self._compute.newcomers.since(besides=batch.callers)
        if batch.newcomers or since is None:
            return False
        self._rested_at = now + REST * (now - max(began, since))
        return not self._closed

    def _check_time(self, batch: Batch) -> None:
        if batch.seconds > self._policy.timeout_s:
            self._flights.count(expired=1)
            raise DeadlineError(f"{self._owner}: an encoder call has taken {batch.seconds:.3g} s", layer="encoder")

    def _land(self, flight: Flight, output: Any) -> None:
        try:
            self._call.check(output, flight.address[1])
        except PluginError as error:
            detach(error)
            self._flights.fail([flight], error)
        else:
            self._flights.land(flight, output, self._call.size(output))

    def _fail(self, batch: Sequence[Flight], error: BaseException) -> None:
        logger.error("%s: a batch of %d failed\n%s", self._owner, len(batch), detach(error))
        with self._flights.lock:
            self._flights.count(crashes=is_crash(error))
            late = isinstance(error, DeadlineError)
            if self._policy.retry_items and len(batch) > 1 and not (late or self._closed):
                self._flights.relaunch(batch)
            else:
                self._flights.fail(batch, typed(error, f"{self._owner}: encoding failed"))
