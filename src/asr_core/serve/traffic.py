"""Which requests are running, so that each ends in time and a server can finish them before it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asr_core.errors import OverloadedError


class Traffic:
    """The requests of one server; used from its event loop only."""

    def __init__(self) -> None:
        self.draining = False
        self._deadlines: set[asyncio.Timeout] = set()
        self._quiet = asyncio.Event()
        self._until: float | None = None

    @property
    def running(self) -> int:
        """How many there are."""
        return len(self._deadlines)

    @property
    def expired(self) -> bool:
        """Whether the server is leaving and waits no longer."""
        return self._until is not None and asyncio.get_running_loop().time() >= self._until

    @asynccontextmanager
    async def request(self, seconds: float) -> AsyncIterator[None]:
        """A running request; TimeoutError inside it after ``seconds``, or when the server will wait no longer."""
        end = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout_at(end if self._until is None else min(end, self._until)) as deadline:
            self._deadlines.add(deadline)
            try:
                yield
            finally:
                self._deadlines.remove(deadline)
                if not self._deadlines:
                    self._quiet.set()

    def admit(self) -> None:
        """Refuse new work once the server is leaving.

        Raises:
            OverloadedError: it is.
        """
        if self.draining:
            raise OverloadedError("the server is shutting down", layer="server")

    async def drain(self, seconds: float) -> None:
        """Take no new work and return when the last running request is answered, cut short after ``seconds``."""
        self.draining = True
        self.expire(seconds)
        while self._deadlines:
            self._quiet.clear()
            await self._quiet.wait()

    def expire(self, seconds: float) -> None:
        """Give what runs, and what may still begin, at most ``seconds`` more."""
        self._until = asyncio.get_running_loop().time() + seconds
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(min(self._until, deadline.when() or self._until))
