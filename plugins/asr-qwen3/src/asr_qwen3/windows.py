"""How a clip is cut for the encoder, in whole numbers: frames, windows of frames, rows per window."""

from __future__ import annotations

from attrs import frozen

from asr_core.types import AudioSpan


def rows_of_chunk(frames: int) -> int:
    """Encoder rows of one chunk: three convolutions halve its frames, rounding up."""
    for _ in range(3):
        frames = (frames + 1) // 2
    return frames


@frozen
class Windows:
    """Frames are ``hop`` samples; the encoder folds ``chunk`` of them at once and attends within ``window``.

    Sound shorter than ``min_samples`` is padded with silence, which counts as heard.
    """

    hop: int
    chunk: int
    window: int
    min_samples: int

    def frames(self, samples: int) -> int:
        """Mel frames of a clip; a rest shorter than a hop has none."""
        return max(samples, self.min_samples) // self.hop

    def rows(self, frames: int) -> int:
        """Encoder rows of so many frames in a row."""
        whole, rest = divmod(frames, self.chunk)
        return whole * rows_of_chunk(self.chunk) + rows_of_chunk(rest)

    def spans(self, samples: int) -> tuple[AudioSpan, ...]:
        """One span per window; the last one reaches to the end of the clip and costs as many frames as it has."""
        total = self.frames(samples)
        return tuple(self._span(first, total, samples) for first in range(0, total, self.window))

    def bounds(self, span: AudioSpan, samples: int) -> slice:
        """The frames of ``span`` among those of its clip."""
        first = span.start_sample // self.hop
        return slice(first, min(first + self.window, self.frames(samples)))

    def _span(self, first: int, total: int, samples: int) -> AudioSpan:
        end = min(first + self.window, total)
        end_sample = samples if end == total else end * self.hop
        return AudioSpan(first * self.hop, end_sample, tokens=self.rows(end - first), cost=float(end - first))
