"""Decoding beside an event loop, which ends with whoever waits for it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor
from functools import partial

from asr_core.audio._deadline import Watch
from asr_core.audio._limits import DEFAULT_LIMITS
from asr_core.audio._load import load, unwatched
from asr_core.audio._source import AudioSource
from asr_core.types import UploadLimits, Waveform


async def read(
    source: AudioSource,
    rate: int,
    limits: UploadLimits = DEFAULT_LIMITS,
    *,
    executor: Executor | None = None,
    watch: Watch = unwatched,
) -> Waveform:
    """:func:`load` on a thread of ``executor``, or of asyncio's own; raises what that does.

    Whoever is cancelled goes on once the thread has let go of ``source``, which takes it one packet at most.
    """
    left = threading.Event()

    def check(seconds: float) -> bool:
        if left.is_set():
            raise _LeftError
        return watch(seconds)

    loop = asyncio.get_running_loop()
    decoding = loop.run_in_executor(executor, partial(load, source, rate, limits, check))
    try:
        return await asyncio.shield(decoding)
    finally:
        left.set()
        await asyncio.gather(decoding, return_exceptions=True)


class _LeftError(Exception):
    """Nobody waits for this sound any more."""
