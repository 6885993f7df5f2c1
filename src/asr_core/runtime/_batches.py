"""Spans on their way to the encoder, and the batches they travel in."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from attrs import define, field

from asr_core.types import EncoderPolicy, Feature

TURN_S = 0.25
"""Seconds a batch may take: those who generate, and whoever comes meanwhile, wait for its end."""

OVERTAKING = 4
"""Spans of later callers that go before one that waits: who has many waits longer, and never for ever."""

Address = tuple[bytes, int]
"""Digest of a feature and the rows expected of it: plans that disagree about the rows never share an output."""


@define(eq=False)
class Flight:
    """One feature to encode, for ``waiters`` callers; ``arrived`` is a time of :func:`time.monotonic`.

    ``caller`` is whose it is, the ``id`` of the waveform, and ``turn`` how many of the same caller's go before it;
    ``newcomer`` tells that its caller was about its first clip. ``alone`` marks one that shared a batch which failed,
    and is tried again without company.
    """

    address: Address
    feature: Feature = field(repr=False)
    cost: float
    caller: int = 0
    newcomer: bool = False
    turn: float = 0.0
    arrived: float = field(factory=time.monotonic)
    waiters: int = 0
    alone: bool = False
    future: Future[Any] = field(factory=Future, repr=False)


class BatchQueue:
    """Every caller's first, then every caller's second, in batches as large as the policy and the clock allow.

    Of callers it is first come, first served. ``seconds`` is what a unit of cost takes, once that is known: not every
    call can be interrupted, so a batch is to take no longer than TURN_S. Whoever uses this holds a lock.
    """

    def __init__(self, policy: EncoderPolicy) -> None:
        self.seconds = 0.0
        self._turn = 0.0
        self._policy = policy
        self._waiting: deque[Flight] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, flight: Flight) -> None:
        """Behind the others of its caller; a caller without any comes before others' further ones."""
        turns = (waiting.turn + 1 for waiting in self._waiting if waiting.caller == flight.caller)
        flight.turn = max(turns, default=self._turn)
        self._waiting.append(flight)

    def push_front(self, flights: Iterable[Flight]) -> None:
        """Before all others, in this order."""
        self._waiting.extendleft(reversed(list(flights)))

    def discard(self, flight: Flight) -> bool:
        """Whether it waited; it does no more."""
        if flight not in self._waiting:
            return False
        self._waiting.remove(flight)
        return True

    def due_in(self, now: float) -> float:
        """Seconds until the next batch should leave: none when it is full, and no end of them when nothing waits."""
        batch, full = self._next()
        if not batch:
            return math.inf
        return 0.0 if full else max(0.0, batch[0].arrived + self._policy.max_wait_s - now)

    def callers(self) -> set[int]:
        """Whose spans wait."""
        return {flight.caller for flight in self._waiting}

    def take(self) -> list[Flight]:
        """The next batch, empty when nothing waits."""
        batch, _ = self._next()
        for flight in batch:
            self._waiting.remove(flight)
            self._turn = max(self._turn + 1 / OVERTAKING, flight.turn)
        return batch

    def clear(self) -> list[Flight]:
        """Everything that waited."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def _next(self) -> tuple[list[Flight], bool]:
        batch: list[Flight] = []
        for flight in sorted(self._waiting, key=lambda flight: not flight.alone and flight.turn):
            # A span that costs more than a batch may has one to itself.
            if batch and not self._has_room(batch, flight):
                return batch, True
            batch.append(flight)
        return batch, len(batch) == self._policy.max_items

    def _has_room(self, batch: list[Flight], flight: Flight) -> bool:
        if flight.alone or batch[0].alone or len(batch) == self._policy.max_items:
            return False
        summed = sum(each.cost for each in batch) + flight.cost
        return summed * self.seconds <= TURN_S and (self._policy.max_cost is None or summed <= self._policy.max_cost)
