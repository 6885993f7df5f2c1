"""Uploads become sound: a bounded number at once, of a bounded length in all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from attrs import define

from asr_core import audio
from asr_core.audio import AudioSource
from asr_core.errors import BusyError
from asr_core.types import ServerLimits, Waveform


class Decoder:
    """What decodes for all requests of one server; threads of its own, as hooks would wait for those of asyncio."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.threads = ThreadPoolExecutor(limits.max_decodes, thread_name_prefix="asr-decode")
        self._turns = asyncio.Semaphore(limits.max_decodes)
        self._lock = threading.Lock()
        self._held_ms = 0  # an integer, which comes back to 0

    @property
    def held(self) -> float:
        """Seconds of sound that requests have in memory."""
        return self._held_ms / 1000

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One of the threads.

        Raises:
            BusyError: none became free in time.
        """
        try:
            async with asyncio.timeout(self.limits.max_wait):
                await self._turns.acquire()
        except TimeoutError as error:
            raise BusyError(
                f"other uploads are being decoded, {self.limits.max_decodes} at once",
                layer="audio",
                setting="max_decodes",
            ) from error
        try:
            yield
        finally:
            self._turns.release()

    def grow(self, more_ms: int) -> bool:
        """Whether there was room for so many milliseconds more, which are taken; from any thread."""
        with self._lock:
            if more_ms > 0 and self._held_ms + more_ms > 1000 * self.limits.max_total_seconds:
                return False
            self._held_ms += more_ms
            return True


@define(eq=False)
class Sound:
    """The sound of one request, held from its first packet to the end of the answer."""

    decoder: Decoder
    milliseconds: int = 0
    began: float | None = None
    """When a turn to decode was asked for, on the monotonic clock."""
    held_up: float | None = None
    """Since when there is no room for the next packet."""

    @property
    def seconds(self) -> float:
        """How much there is, or was."""
        return self.milliseconds / 1000

    async def read(self, source: AudioSource, rate: int) -> Waveform:
        """Decode ``source`` at ``rate`` Hz.

        Raises:
            BusyError: there was neither a thread nor room in time.
            AudioError, UploadTooLargeError, AudioTooLongError: see :func:`asr_core.audio.load`.
        """
        self.began = time.monotonic()
        limits, threads = self.decoder.limits.upload, self.decoder.threads
        async with self.decoder.turn():
            return await audio.read(source, rate, limits, executor=threads, watch=self._watch)

    def release(self) -> None:
        """Make room."""
        self.decoder.grow(-self.milliseconds)

    def _watch(self, seconds: float) -> bool:
        milliseconds = round(1000 * seconds)
        if self.decoder.grow(milliseconds - self.milliseconds):
            self.milliseconds, self.held_up = milliseconds, None
            return True
        self.held_up = self.held_up or time.monotonic()
        limits = self.decoder.limits
        if time.monotonic() - self.held_up > limits.max_wait:
            raise BusyError(
                f"requests in progress hold {self.decoder.held:.0f} s of the {limits.max_total_seconds:g} s of sound "
                "there is room for",
                layer="audio",
                setting="max_total_seconds",
            )
        return False
