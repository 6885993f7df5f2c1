"""What the samples alone say: whether anything sounds."""

from __future__ import annotations

import numpy as np

from asr_core.types import Samples

FRAME_S = 0.02
"""A stretch this short either sounds or does not: it holds a period of the lowest voice."""


def is_silent(samples: Samples, floor: float) -> bool:
    """Whether no sample reaches ``floor`` (linear, 1.0 is full scale); true of nothing at all."""
    # By the extremes, without a copy as large as the clip; the initial value stands for a clip without samples.
    return bool(max(samples.max(initial=0), -samples.min(initial=0)) < floor)


def unvoiced_share(samples: Samples, rate: int, floor: float) -> float:
    """Share, 0 to 1, of the frames of 20 ms in which no sample reaches ``floor``; 1.0 of nothing at all."""
    frame = round(FRAME_S * rate)
    starts = np.arange(0, len(samples), frame)
    if not len(starts):
        return 1.0
    peaks = np.maximum(np.maximum.reduceat(samples, starts), -np.minimum.reduceat(samples, starts))
    return float(np.mean(peaks < floor))
