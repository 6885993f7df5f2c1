"""What the container says about time, held against what was decoded."""

from __future__ import annotations

from typing import Any

# Recorders of webm stamp packets by the wall clock, mp3 has no stamps but FFmpeg's; the others count samples.
_JITTER_SECONDS = {"matroska": 0.1, "mp3": 0.05, "aac": 0.05}
_ROUNDING_SECONDS = 0.01
_PROMISE_SECONDS = 0.25
# Those whose duration FFmpeg reads; it guesses that of the others from the bit rate.
_PROMISING = {"flac", "matroska", "mov", "ogg", "w64"}


class Clock:
    """Finds stretches of time for which the container holds no sound; timestamps never move any sound."""

    def __init__(self, container: Any, stream: Any) -> None:
        self._tolerance = _JITTER_SECONDS.get(container.format.name, _ROUNDING_SECONDS)
        self._promised = _promise(container, stream)
        self._next: float | None = None
        self._accounted = 0.0

    def gap(self, frame: Any) -> str:
        """One sentence about the time missing before ``frame``, or ""."""
        missing = 0.0
        if frame.pts is not None and frame.time_base:
            at = float(frame.pts * frame.time_base)
            if self._next is not None and at - self._next > self._tolerance:
                missing = at - self._next
            self._next = at
        seconds = frame.samples / frame.sample_rate
        self._next = None if self._next is None else self._next + seconds
        self._accounted += seconds + missing
        return f"The container holds no sound for {missing:.2f} s." if missing else ""

    def shortfall(self) -> str:
        """One sentence about a promised end that was not reached, or ""."""
        if self._promised - self._accounted <= _PROMISE_SECONDS:
            return ""
        return f"The container promises {self._promised:.2f} s, of which {self._accounted:.2f} s were found."


def _promise(container: Any, stream: Any) -> float:
    """Seconds of sound the header announces; 0 where it announces none, or those of a video."""
    if container.format.name not in _PROMISING or container.streams.video:
        return 0.0
    if stream.duration is not None:
        return float(stream.duration * stream.time_base)
    # In microseconds, whatever the time base of the stream.
    return float(container.duration or 0) / 1e6
