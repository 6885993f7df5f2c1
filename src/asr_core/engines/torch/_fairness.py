"""Whose turn it is: callers share the engine, however many requests each of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Shares:
    """Positions computed for each caller who has work here: the one who was served least is next.

    A caller who comes starts where an even share would be by now: time away is no credit to spend at others' cost, and
    a stream of newcomers cannot hold back those who are here.
    """

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._served: dict[str, float] = {}
        self._even = 0.0

    def enter(self, caller: str) -> None:
        """One more request of ``caller`` is here."""
        self._served.setdefault(caller, max(self._even, min(self._served.values(), default=0.0)))
        self._requests[caller] += 1

    def leave(self, caller: str) -> None:
        """One request less; with the last one its caller is forgotten."""
        self._requests[caller] -= 1
        if not self._requests[caller]:
            del self._requests[caller], self._served[caller]

    def charge(self, caller: str, positions: int) -> None:
        """So much was computed for ``caller``."""
        if caller in self._served:
            self._served[caller] += positions
            self._even += positions / len(self._served)

    def poorest(self, callers: Iterable[str], running: Counter[str] | None = None) -> str:
        """The caller with the fewest ``running`` requests, then the one served least, then the first."""
        busy = running or Counter()
        return min(callers, key=lambda caller: (busy[caller], self._served[caller]))
