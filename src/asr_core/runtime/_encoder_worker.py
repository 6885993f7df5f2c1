"""The worker of an encoder service: it sends one batch at a time to the compute thread and watches the clock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from asr_core.engines.compute import Compute
from asr_core.errors import DeadlineError, OverloadedError, PluginError
from asr_core.runtime._batches import Flight
from asr_core.runtime._failures import detach, is_crash, typed
from asr_core.runtime._flights import Flights
from asr_core.runtime._span_calls import SpanCall
from asr_core.types import EncoderPolicy

logger = logging.getLogger(__name__)


class EncoderWorker:
    """A thread that lives while something waits; batches are made when the compute thread is ready for them.

    ``owner`` is the plugin's name for messages.
    """

    def __init__(self, owner: str, call: SpanCall, policy: EncoderPolicy, flights: Flights, compute: Compute) -> None:
        self._owner = owner
        self._call = call
        self._policy = policy
        self._flights = flights
        self._compute = compute
        self._thread: threading.Thread | None = None
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
        """Let the running batch finish, unless it hangs, and fail what waits."""
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
        """Whether there is a batch; if not, the next request starts a new thread."""
        with self._flights.lock:
            if self._flights.wait_until_due():
                return True
            self._thread = None
            return False

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
            self._flights.fail_all(DeadlineError(self.trouble, layer="encoder"))
        logger.error("%s", self.trouble)

    def _give_up(self, error: BaseException) -> None:
        """Dies of something that is not the plugin's, such as a compute thread that was closed first."""
        logger.error("%s: the encoder's worker ended\n%s", self._owner, detach(error))
        failure = typed(error, f"{self._owner}: encoding failed")
        with self._flights.lock:
            self._thread, self.trouble = None, None
            self._flights.count(crashes=not isinstance(failure, OverloadedError))
            self._flights.fail_all(failure)

    # On the compute thread

    def _turn(self) -> None:
        batch = self._flights.take()
        if not batch:
            return
        # Processor time, as a wait for anything else is not the batch's; a thread that waits for a GPU spins.
        began = time.thread_time()
        try:
            outputs = self._call.run([flight.feature for flight in batch])
        # Whatever a module raises, SystemExit included, must not end the turns of all others.
        except BaseException as error:
            self._fail(batch, error)
            return
        self._flights.took(batch, time.thread_time() - began)
        for flight, output in zip(batch, outputs, strict=True):
            self._land(flight, output)

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
            if self._policy.retry_items and len(batch) > 1 and not self._closed:
                self._flights.relaunch(batch)
            else:
                self._flights.fail(batch, typed(error, f"{self._owner}: encoding failed"))
