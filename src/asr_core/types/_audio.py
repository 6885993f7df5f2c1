"""Sound in memory: the waveform of a request and the clips cut from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

Samples = npt.NDArray[np.float32]


@frozen
class Hole:
    """A stretch of the upload that could not be decoded.

    ``start_sample`` is where it lies in the decoded waveform, ``reason`` one sentence for people.
    """

    start_sample: int
    reason: str


@frozen(eq=False)
class Waveform:
    """Decoded audio: mono float32 ``samples`` of shape [n] at ``rate`` Hz, all finite.

    ``fingerprint`` is 16 bytes, equal for equal samples and rate. ``holes`` tells what the container promised and the
    decoder could not deliver.
    """

    samples: Samples = field(repr=False)
    rate: int
    fingerprint: bytes
    holes: tuple[Hole, ...] = ()

    @property
    def duration(self) -> float:
        """Seconds, counted from decoded samples; no header is believed."""
        return len(self.samples) / self.rate

    def clip(self, start_sample: int = 0, end_sample: int | None = None) -> Clip:
        """The stretch from ``start_sample`` up to, not including, ``end_sample``."""
        return Clip(self, start_sample, len(self.samples) if end_sample is None else end_sample)


@frozen(eq=False)
class Clip:
    """What one call of the model hears: a view on a waveform, offsets in samples of that waveform."""

    waveform: Waveform
    start_sample: int
    end_sample: int

    @property
    def samples(self) -> Samples:
        """Mono float32 of shape [end_sample - start_sample]; a view, never to be written to."""
        return self.waveform.samples[self.start_sample : self.end_sample]

    @property
    def rate(self) -> int:
        """Samples per second."""
        return self.waveform.rate

    @property
    def duration(self) -> float:
        """Seconds."""
        return (self.end_sample - self.start_sample) / self.rate

    def milliseconds(self, sample: int) -> int:
        """Time of ``sample`` (counted from the clip's start) on the clock of the whole audio."""
        return round(1000 * (self.start_sample + sample) / self.rate)


@frozen
class AudioSpan:
    """The unit of encoding, batching and caching: a stretch of a clip, offsets in samples from the clip's start.

    ``tokens`` is the number of rows the encoder must return for it (0 for a model that recognises without one);
    ``key`` sets spans apart that cover the same samples but are computed differently; ``cost`` is what the span adds to
    a batch, in units of the plugin's choosing.
    """

    start_sample: int
    end_sample: int
    tokens: int = 0
    key: str = ""
    cost: float = 1.0


@frozen(eq=False)
class Feature:
    """What the encoder eats for one span: an array, and how many positions in time are real rather than padding.

    Which axis time is, is the plugin's own business.
    """

    data: npt.NDArray[np.floating] = field(repr=False)
    length: int
