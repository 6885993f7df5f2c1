"""Audio as the frames of a detector: how loud each is, and how much like speech."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from asr_core.audio import peaks
from asr_core.errors import PluginError
from asr_core.services import VoiceDetector
from asr_core.types import Waveform

Mask = npt.NDArray[np.bool_]


class Frames:
    """Frame i is from sample ``edges[i]`` up to ``edges[i + 1]``; nothing is computed before it is asked for."""

    def __init__(self, waveform: Waveform, detector: VoiceDetector) -> None:
        count, size = len(waveform.samples), detector.frame_s * waveform.rate
        self.waveform = waveform
        edges = (np.arange(np.ceil(count / size)) * size).astype(np.int64)
        # A rounding error may add a frame that has no samples.
        self.edges = np.append(edges[edges < count], count)
        self._detector = detector

    @cached_property
    def peaks(self) -> npt.NDArray[np.float32]:
        """The largest magnitude in each frame."""
        return peaks(self.waveform.samples, self.edges[:-1])

    @cached_property
    def scores(self) -> npt.NDArray[np.float32]:
        """The detector's, one for each frame.

        Raises:
            PluginError: it gave too few or too many.
        """
        scores = self._detector.scores(self.waveform.samples, self.waveform.rate)
        missing = len(self.edges) - 1 - len(scores)
        if abs(missing) > 1:  # by one, where a rounding error makes a frame more or less
            raise PluginError(f"the detector of speech gave {len(scores)} scores for {len(self.edges) - 1} frames")
        return np.pad(scores, (0, max(0, missing)))[: len(self.edges) - 1]


def runs(mask: Mask) -> Iterator[tuple[int, int]]:
    """First and one past the last index of each stretch of True, in order."""
    flanks = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).view(np.int8)))
    return zip(flanks[::2].tolist(), flanks[1::2].tolist(), strict=True)
