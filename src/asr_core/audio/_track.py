"""The waveform of a request while it grows."""

from __future__ import annotations

import numpy as np

from asr_core.audio._decode import Block
from asr_core.audio._resample import Resampler
from asr_core.errors import AudioTooLongError, CorruptAudioError
from asr_core.types import Hole, Samples

# One call of the resampler for many small frames; 4 s of 16 kHz.
_BATCH = 65536
# Samples of room at once, 64 MiB: room is cleared when it is made, so all of it counts as memory.
_MAX_ROOM = 1 << 24
_MAX_HOLES = 100


class Track:
    """Collects blocks of any rate, in order of time, as one array at ``rate`` Hz, never longer than ``max_seconds``.

    The sound is held once, at the new rate; at the source's own rate there is one batch of it at any time.
    """

    def __init__(self, rate: int, max_seconds: float) -> None:
        self.holes: list[Hole] = []
        self._rate = rate
        self._max_seconds = max_seconds
        self._samples = np.empty(_BATCH, np.float32)
        self._filled = 0
        self._pending: list[Samples] = []
        self._pending_count = 0
        self._resampler = Resampler(rate, rate)
        self._earlier_length = 0
        self._earlier_seconds = 0.0

    @property
    def position(self) -> int:
        """Samples at the new rate for all that was added so far."""
        return self._earlier_length + self._resampler.length_with(self._pending_count)

    @property
    def seconds(self) -> float:
        """What was added so far, on the clock of the source."""
        return self._earlier_seconds + self._resampler.seconds + self._pending_count / self._resampler.source_rate

    def add(self, block: Block) -> None:
        """Append ``block``; AudioTooLongError past the limit, CorruptAudioError for a sample that is not finite."""
        if block.rate != self._resampler.source_rate:
            self._begin(block.rate)
        self._pending.append(block.samples)
        self._pending_count += len(block.samples)
        self._check_length()
        if self._pending_count >= _BATCH:
            self._push()

    def mark(self, reason: str) -> None:
        """Note a hole at the present position; one at the same place, or beyond the hundredth, joins the last."""
        if self.holes and self.holes[-1].start_sample == self.position:
            return
        if len(self.holes) < _MAX_HOLES - 1:
            self.holes.append(Hole(self.position, reason))
        elif len(self.holes) == _MAX_HOLES - 1:
            self.holes.append(Hole(self.position, f"{reason} More damage follows and is not listed."))

    def finish(self) -> Samples:
        """All samples, shape [n]; nothing may be added afterwards."""
        self._begin(self._rate)
        self._samples.resize(self._filled, refcheck=False)
        return self._samples

    def _begin(self, source_rate: int) -> None:
        self._push()
        for rest in self._resampler.flush():
            self._append(rest)
        self._earlier_length += self._resampler.length_with(0)
        self._earlier_seconds += self._resampler.seconds
        self._resampler = Resampler(source_rate, self._rate)

    def _push(self) -> None:
        if self._pending:
            block = np.concatenate(self._pending)
            self._pending.clear()
            self._pending_count = 0
            self._check_finite(block)
            self._append(self._resampler.push(block))

    def _append(self, block: Samples) -> None:
        end = self._filled + len(block)
        if end > len(self._samples):
            # In place: the allocator moves the pages of a large array, it does not hold it twice.
            room = min(len(self._samples) // 4, _MAX_ROOM)
            self._samples.resize(max(end, len(self._samples) + room), refcheck=False)
        self._samples[self._filled : end] = block
        self._filled = end

    def _check_length(self) -> None:
        if self.seconds > self._max_seconds:
            raise AudioTooLongError(
                f"The audio is longer than the {self._max_seconds:g} s this endpoint takes.", setting="max_seconds"
            )

    def _check_finite(self, block: Samples) -> None:
        good = np.isfinite(block)
        if not good.all():
            at = self._earlier_seconds + (self._resampler.taken + int(good.argmin())) / self._resampler.source_rate
            raise CorruptAudioError(f"A sample at {at:.3f} s is not a finite number (NaN or infinity).")
