"""What the samples alone say: whether anything sounds, and where it is well above the noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from attrs import frozen

from asr_core.audio import peaks
from asr_core.types import Samples

FRAME_S = 0.02
"""A stretch this short either sounds or does not: it holds a period of the lowest voice."""

NOISE = 10
"""Percentile of the frames' peaks that is taken for noise: whoever speaks for long pauses for a tenth of it."""

ABOVE_NOISE = 10 ** (10 / 20)
"""10 dB: peaks of steady noise stay within a few dB of one another."""


def is_silent(samples: Samples, floor: float) -> bool:
    """Whether no sample reaches ``floor`` (linear, 1.0 is full scale); true of nothing at all."""
    # By the extremes, without a copy as large as the clip; the initial value stands for a clip without samples.
    return bool(max(samples.max(initial=0), -samples.min(initial=0)) < floor)


def unvoiced_share(samples: Samples, rate: int, floor: float) -> float:
    """Share, 0 to 1, of the frames of 20 ms in which no sample reaches ``floor``; 1.0 of nothing at all."""
    return float(np.mean(_peaks(samples, rate) < floor)) if len(samples) else 1.0


@frozen(eq=False)
class Voice:
    """Which frames of 20 ms stand out of the noise: mostly speech, but a slammed door too."""

    frames: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, samples: Samples, rate: int, floor: float) -> Voice:
        """Frames of ``samples`` with a peak above ``floor`` and 10 dB above the softest tenth of them."""
        if not len(samples):
            return cls(np.zeros(0, bool))
        levels = _peaks(samples, rate)
        return cls(levels > max(floor, ABOVE_NOISE * float(np.percentile(levels, NOISE))))

    def ms(self, start_ms: int, end_ms: int) -> int:
        """How much of it lies between these milliseconds."""
        first, end = (round(ms / (1000 * FRAME_S)) for ms in (start_ms, end_ms))
        return round(1000 * FRAME_S * np.count_nonzero(self.frames[first:end]))


def _peaks(samples: Samples, rate: int) -> npt.NDArray[np.float32]:
    return peaks(samples, np.arange(0, len(samples), round(FRAME_S * rate)))
