"""How many rows a stretch of sound becomes, counted without computing a feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from asr_funasr.numbers import positive


@frozen
class Frames:
    """Kaldi frames of ``window`` samples every ``shift``, of which every ``stride``-th begins a row."""

    sample_rate: int
    window: int
    shift: int
    stride: int

    @classmethod
    def of(cls, extractor: Mapping[str, Any]) -> Frames:
        """From the feature extractor's settings; what is not there is as FunAsrNanoFeatureExtractor has it.

        Raises:
            CheckpointError: a number that is none.
        """
        rate = positive(extractor, "sampling_rate", 16_000)
        window_ms, shift_ms = positive(extractor, "frame_length", 25), positive(extractor, "frame_shift", 10)
        return cls(rate, rate * window_ms // 1000, rate * shift_ms // 1000, positive(extractor, "stride_lfr", 6))

    @property
    def rows_per_second(self) -> float:
        """Of a long stretch."""
        return self.sample_rate / (self.shift * self.stride)

    def rows(self, samples: int) -> int:
        """0 for less than a frame; a frame must lie in the sound (``snip_edges``), a row may reach beyond it."""
        if samples < self.window:
            return 0
        frames = 1 + (samples - self.window) // self.shift
        return -(-frames // self.stride)
