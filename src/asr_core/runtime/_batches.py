"""Spans on their way to the encoder, and the batches they travel in."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from attrs import define, field

from asr_core.types import EncoderPolicy, Feature

Address = tuple[bytes, int]
"""Digest of a feature and the rows expected of it: plans that disagree about the rows never share an output."""


@define(eq=False)
class Flight:
    """One feature to encode, for ``waiters`` callers; ``arrived`` is a time of :func:`time.monotonic`.

    ``alone`` marks one that shared a batch which failed, and is tried again without company.
    """

    address: Address
    feature: Feature = field(repr=False)
    cost: float
    arrived: float = field(factory=time.monotonic)
    waiters: int = 0
    alone: bool = False
    future: Future[Any] = field(factory=Future, repr=False)


class BatchQueue:
    """First come, first served, in batches as large as the policy allows; whoever uses it holds a lock."""

    def __init__(self, policy: EncoderPolicy) -> None:
        self._policy = policy
        self._waiting: deque[Flight] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, flight: Flight) -> None:
        """Behind all others."""
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
        """Seconds until the next batch should leave: none when it is full, or when nothing waits."""
        batch, full = self._next()
        return 0.0 if full or not batch else max(0.0, batch[0].arrived + self._policy.max_wait_s - now)

    def take(self) -> list[Flight]:
        """The next batch, empty when nothing waits."""
        batch, _ = self._next()
        return [self._waiting.popleft() for _ in batch]

    def clear(self) -> list[Flight]:
        """Everything that waited."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def _next(self) -> tuple[list[Flight], bool]:
        batch: list[Flight] = []
        for flight in self._waiting:
            # A span that costs more than a batch may has one to itself.
            if batch and not self._has_room(batch, flight):
                return batch, True
            batch.append(flight)
        return batch, len(batch) == self._policy.max_items

    def _has_room(self, batch: list[Flight], flight: Flight) -> bool:
        if flight.alone or batch[0].alone or len(batch) == self._policy.max_items:
            return False
        summed = sum(each.cost for each in batch) + flight.cost
        return self._policy.max_cost is None or summed <= self._policy.max_cost
