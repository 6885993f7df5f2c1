"""Which positions of the encoder's window are computed: all of the sound, and of the silence behind it a sample."""

from __future__ import annotations

import math

import torch
from attrs import frozen

from asr_whisper.policy import FRAMES_PER_POSITION, HOP, SAMPLE_RATE

STRIDE = 8
"""Of the silence that fills a window one position in so many is computed, and counts for as many.

Leaving all of it out costs words: with 2 s of it instead of 25, 43 of 100 on clips of a few seconds. So thinned out it
costs none (benchmarks/thinning.py) and half of the time.
"""

GRAIN = 8
"""Positions are thinned by so many at a time: oneDNN keeps half a megabyte for every length of a product it met."""

MARGIN_S = 1.0
"""Seconds of silence behind the sound that are computed whole; where a third or less would be left, all of it is."""


@frozen
class Window:
    """Of ``context`` positions all are computed but the last ``thinned`` x STRIDE, and of these every STRIDE-th.

    So the number of rows tells where the sound ends, as far as it matters.
    """

    context: int
    thinned: int

    @classmethod
    def of_frames(cls, frames: int, context: int) -> Window:
        """For that many frames of sound."""
        margin = math.ceil(MARGIN_S * SAMPLE_RATE / (HOP * FRAMES_PER_POSITION))
        silent = context - frames // FRAMES_PER_POSITION - margin
        return cls(context, silent // STRIDE // GRAIN * GRAIN if silent > context // 3 else 0)

    @classmethod
    def of_rows(cls, rows: int, context: int) -> Window:
        """The one that gives so many rows."""
        return cls(context, (context - rows) // (STRIDE - 1))

    @property
    def rows(self) -> int:
        """How many are computed."""
        return self.context - self.thinned * (STRIDE - 1)

    @property
    def whole(self) -> int:
        """The first of the positions that are thinned out: silence, which sounds alike at all of them."""
        return self.context - self.thinned * STRIDE

    @property
    def frames(self) -> int:
        """Mel frames that positions up to ``whole`` are made of, and one position more, which the end reaches into."""
        return FRAMES_PER_POSITION * (self.whole + 2)

    @property
    def positions(self) -> torch.Tensor:
        """Which these are, of shape [rows]."""
        return torch.cat([torch.arange(self.whole), self.whole + STRIDE // 2 + STRIDE * torch.arange(self.thinned)])

    def bias(self, like: torch.Tensor) -> torch.Tensor | None:
        """What makes attention count each for all it stands for, of shape [rows]; None where each is itself."""
        if not self.thinned:
            return None
        bias = like.new_zeros(self.rows)
        bias[-self.thinned :] = math.log(STRIDE)
        return bias
