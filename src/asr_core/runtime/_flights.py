"""All spans of one model that are on their way to the encoder, and all outputs that are kept, under one lock."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from attrs import evolve, frozen

from asr_core.errors import AsrError, BusyError
from asr_core.runtime._batches import Address, BatchQueue, Flight
from asr_core.runtime._encoder_cache import EncoderCache
from asr_core.types import EncoderPolicy


@frozen
class EncoderStatistics:
    """Counters since start, and what waits and is kept now.

    Each span of a request is a hit (its output was kept), merged (it was on its way already) or a miss. ``batches``
    calls of the hook were given ``items`` features, ``retried`` of them for the second time and alone. ``failed`` items
    got no output, whatever the reason; ``unwanted`` ones were left by all their callers before their turn. ``expired``
    calls ran out of time, ``crashes`` would have ended a thread. ``refused`` requests found the queue full. ``evicted``
    outputs made room for others.
    """

    hits: int = 0
    merged: int = 0
    misses: int = 0
    batches: int = 0
    items: int = 0
    retried: int = 0
    failed: int = 0
    unwanted: int = 0
    expired: int = 0
    crashes: int = 0
    refused: int = 0
    evicted: int = 0
    queued: int = 0
    entries: int = 0
    bytes: int = 0


class Flights:
    """Registered until they land or fail; one address flies once at a time.

    Spans of newcomers and those of the others wait in a queue each. Every method takes the lock itself; hold it to make
    several calls one step, or to wait for spans, of which it is told.
    """

    def __init__(self, policy: EncoderPolicy, lock: threading.Condition) -> None:
        self.lock = lock
        self.cache = EncoderCache(policy)
        self._bound = policy.queue_bound
        self._newcomers, self._others = BatchQueue(policy), BatchQueue(policy)
        self._flying: dict[Address, Flight] = {}
        self._statistics = EncoderStatistics()

    # For those who ask

    def join(self, address: Address) -> Future[Any] | None:
        """The output that is kept, or on its way."""
        with self.lock:
            if output := self.cache.get(address):
                self.count(hits=1)
                return output
            if flight := self._flying.get(address):
                self.count(merged=1)
                flight.waiters += 1
                return flight.future
            return None

    def missing(self, addresses: Iterable[Address]) -> int:
        """How many of them would have to be launched.

        Raises:
            BusyError: more than may wait; an empty queue takes any number, or long audio could never be served.
        """
        with self.lock:
            count = len({address for address in addresses if address not in self.cache} - self._flying.keys())
            waiting = self._queued()
            if waiting and count and waiting + count > self._bound:
                self.count(refused=1)
                raise BusyError(f"{waiting} spans wait for the encoder already", layer="encoder")
            return count

    def launch(self, flight: Flight) -> Future[Any]:
        """Register what :meth:`join` did not find."""
        with self.lock:
            self.count(misses=1)
            flight.waiters += 1
            self._flying[flight.address] = flight
            self._queue(newcomers=flight.newcomer).push(flight)
            self.lock.notify_all()
            return flight.future

    def of(self, caller: int) -> bool:
        """Whether anything of this caller is on its way."""
        with self.lock:
            return any(flight.caller == caller for flight in self._flying.values())

    def leave(self, address: Address, output: Future[Any]) -> None:
        """Wait no longer: what nobody waits for is not begun, but finished once it is."""
        with self.lock:
            flight = self._flying.get(address)
            if flight is not None and flight.future is output:
                flight.waiters -= 1
                self._drop_unwanted(flight)

    # For those who compute

    def due_in(self, now: float, *, newcomers: bool) -> float:
        """Seconds until the next batch of these should leave, infinite when none of their spans waits."""
        with self.lock:
            return self._queue(newcomers=newcomers).due_in(now)

    def callers(self, *, newcomers: bool) -> set[int]:
        """Whose spans wait in that queue."""
        with self.lock:
            return self._queue(newcomers=newcomers).callers()

    def take(self, *, newcomers: bool) -> list[Flight]:
        """The next batch of these, empty when all that waited was failed meanwhile."""
        with self.lock:
            batch = self._queue(newcomers=newcomers).take()
            self.count(batches=bool(batch), items=len(batch), retried=sum(flight.alone for flight in batch))
            return batch

    def took(self, batch: Sequence[Flight], seconds: float) -> None:
        """Note how long a batch was computed."""
        cost = sum(flight.cost for flight in batch)
        with self.lock:
            self._newcomers.seconds = self._others.seconds = seconds / cost if cost else 0.0

    def flying(self, batch: Iterable[Flight]) -> bool:
        """Whether any of these has neither landed nor failed."""
        with self.lock:
            return any(self._flying.get(flight.address) is flight for flight in batch)

    def land(self, flight: Flight, output: Any, size: int) -> None:
        """Keep an output of ``size`` bytes and hand it to all who wait."""
        with self.lock:
            if self._flying.get(flight.address) is not flight:
                return  # it was given up while its call hung
            del self._flying[flight.address]
            self.count(evicted=self.cache.put(flight.address, flight.future, size))
        flight.future.set_result(output)

    def relaunch(self, batch: Sequence[Flight]) -> None:
        """Queue the flights of a failed batch again, before all others and each on its own."""
        with self.lock:
            again = [flight for flight in batch if self._flying.get(flight.address) is flight]
            for flight in again:
                flight.alone = True
            self._queue(newcomers=batch[0].newcomer).push_front(again)
            for flight in again:
                self._drop_unwanted(flight)

    def fail(self, flights: Iterable[Flight], error: AsrError) -> None:
        """Tell all who wait for these."""
        with self.lock:
            failed = [flight for flight in flights if self._flying.get(flight.address) is flight]
            for flight in failed:
                del self._flying[flight.address]
            self.count(failed=len(failed))
        for flight in failed:
            flight.future.set_exception(error)

    def fail_waiting(self, error: AsrError) -> None:
        """Empty the queues; what is being computed goes on."""
        with self.lock:
            waiting = self._newcomers.clear() + self._others.clear()
            self.lock.notify_all()
            self.fail(waiting, error)

    def fail_all(self, error: AsrError) -> None:
        """Empty the queues and give up what is being computed."""
        with self.lock:
            self._newcomers.clear()
            self._others.clear()
            self.fail(list(self._flying.values()), error)

    def _drop_unwanted(self, flight: Flight) -> None:
        if not flight.waiters and self._queue(newcomers=flight.newcomer).discard(flight):
            del self._flying[flight.address]
            self.count(unwanted=1)

    def _queue(self, *, newcomers: bool) -> BatchQueue:
        return self._newcomers if newcomers else self._others

    def _queued(self) -> int:
        return len(self._newcomers) + len(self._others)

    # For those who watch

    def count(self, **more: int) -> None:
        """Add to the counters of these names."""
        with self.lock:
            now = self._statistics
            self._statistics = evolve(now, **{name: getattr(now, name) + count for name, count in more.items()})

    def statistics(self) -> EncoderStatistics:
        """Counters at this moment."""
        with self.lock:
            return evolve(self._statistics, queued=self._queued(), entries=len(self.cache), bytes=self.cache.bytes)
