"""A detector that needs nothing but numpy: speech is what is not much softer than the loud parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asr_core.audio import peaks
from asr_core.types import Samples

FRAMES_PER_SECOND = 50
LOUD = 95
"""Percentile of the frames that sound at all, by which loudness is measured: a click is not to be the measure."""
RANGE_DB = 60.0
"""From certainly speech down to certainly none: half of it, 30 dB below, is softer than any vowel of a sentence."""


class EnergyDetector:
    """Scores a frame by its peak: 1 at the loud level of the audio, 0 from 60 dB below it on, in dB between."""

    frame_s = 1 / FRAMES_PER_SECOND

    def scores(self, samples: Samples, rate: int) -> npt.NDArray[np.float32]:
        """How much like speech each 20 ms are, shape [ceil(50 * seconds)]; all 0 where nothing sounds."""
        starts = np.arange(-(-len(samples) * FRAMES_PER_SECOND // rate)) * rate // FRAMES_PER_SECOND
        levels = peaks(samples, starts)
        sounding = levels[levels > 0]
        if not len(sounding):
            return np.zeros(len(levels), np.float32)
        with np.errstate(divide="ignore"):
            below = 20 * (np.log10(levels) - np.log10(np.percentile(sounding, LOUD)))
        scores: npt.NDArray[np.float32] = np.clip(1 + below / RANGE_DB, 0, 1).astype(np.float32)
        return scores
