"""How long a decode may take."""

from __future__ import annotations

import time

from asr_core.errors import DecodeTimeoutError


class Deadline:
    """A wall clock that starts now and runs out after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raise :class:`~asr_core.errors.DecodeTimeoutError` once the time is up."""
        if time.monotonic() > self._end:
            raise DecodeTimeoutError(f"Decoding took longer than the {self._seconds:g} s this endpoint allows.")
