"""A stretch of sound at one rate, resampled while it comes in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from asr_core.types import Samples


class Resampler:
    """Streams blocks from ``source_rate`` to ``rate`` Hz; n samples in give exactly ceil(n * rate / source_rate) out.

    Equal to ``librosa.resample(res_type="soxr_hq")`` of the whole, which is the same library called once.
    """

    def __init__(self, source_rate: int, rate: int) -> None:
        self.source_rate = source_rate
        self.taken = 0
        self._rate = rate
        self._given = 0
        self._stream = None
        if source_rate != rate:
            import soxr

            self._stream = soxr.ResampleStream(source_rate, rate, 1, dtype="float32", quality="HQ")

    def length_with(self, more: int) -> int:
        """Samples at the new rate for all that was taken so far and ``more``."""
        return -(-(self.taken + more) * self._rate // self.source_rate)

    @property
    def seconds(self) -> float:
        """Duration of what was taken so far."""
        return self.taken / self.source_rate

    def push(self, block: Samples) -> Samples:
        """What ``block`` of shape [n] completes, shape [m] with any m, 0 included."""
        self.taken += len(block)
        done = block if self._stream is None else self._stream.resample_chunk(block)
        return self._count(done)

    def flush(self) -> Iterator[Samples]:
        """The remainder, after which nothing may be pushed."""
        if self._stream is not None:
            yield self._count(self._stream.resample_chunk(np.zeros(0, np.float32), last=True))
        # soxr rounds the length to the nearest; silence makes up the last sample, as librosa does.
        yield self._count(np.zeros(self.length_with(0) - self._given, np.float32))

    def _count(self, done: Samples) -> Samples:
        done = done[: max(0, self.length_with(0) - self._given)]
        self._given += len(done)
        return done
