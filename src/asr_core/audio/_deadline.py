"""When a decode has to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from asr_core.errors import DecodeTimeoutError

Watch: TypeAlias = Callable[[float], bool]
"""Told on the decoding thread how many seconds are decoded so far: False holds the decoding up, and what it raises
ends it."""

_PAUSE_SECONDS = 0.02
"""Until a watch that holds the decoding up is asked again."""


class Deadline:
    """A wall clock that starts now and runs out after ``seconds``; who watches may end it earlier, or hold it up."""

    def __init__(self, seconds: float, watch: Watch) -> None:
        self.decoded = 0.0
        """Seconds of sound so far, for the watch."""
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._watch = watch

    def check(self) -> None:
        """Raise :class:`~asr_core.errors.DecodeTimeoutError` once the time is up, or what the watch raises."""
        while not self._watch(self.decoded):
            time.sleep(_PAUSE_SECONDS)
            # Not the audio's fault.
            self._end += _PAUSE_SECONDS
        if time.monotonic() > self._end:
            raise DecodeTimeoutError(
                f"Decoding took longer than the {self._seconds:g} s this endpoint allows.", setting="max_decode_seconds"
            )
