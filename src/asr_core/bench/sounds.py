"""Recordings decoded once, and copies of them that no cache has seen."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from asr_core import audio
from asr_core.api import LOCAL_LIMITS
from asr_core.bench.manifest import Line
from asr_core.errors import AsrError, BenchError

RATE = 16_000
"""Of all that is sent, in Hz: what speech models take, so that nobody measures resampling."""

_FULL_SCALE = 1 << 15

Pcm = npt.NDArray[np.int16]


@frozen(eq=False)
class Sound:
    """A line of the manifest and its samples of shape [n] at :data:`RATE`."""

    line: Line
    samples: Pcm = field(repr=False)

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / RATE


def open_sounds(lines: Iterable[Line]) -> tuple[Sound, ...]:
    """Decode every recording.

    Raises:
        BenchError: one cannot be read; the message names it.
    """
    return tuple(Sound(line, _decoded(line)) for line in lines)


def _decoded(line: Line) -> Pcm:
    try:
        samples = audio.load(line.path, RATE, LOCAL_LIMITS).samples
    except (AsrError, OSError) as error:
        raise BenchError(f"{line.path} cannot be read: {error}", param="path") from error
    return _clipped(np.rint(samples * _FULL_SCALE))


def unique(samples: Pcm, seed: int, number: int) -> Pcm:
    """``samples`` with each one lower, the same or higher by one step, as ``seed`` and ``number`` have it.

    At the ends of the scale it stays where it is. Silence becomes noise 90 dB below full scale, which nobody hears.
    """
    noise = np.random.default_rng([seed, number]).integers(-1, 2, len(samples))
    return _clipped(samples + noise)


def _clipped(values: npt.NDArray[np.floating | np.integer]) -> Pcm:
    clipped: Pcm = np.clip(values, -_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16)
    return clipped


def wav(samples: Pcm) -> bytes:
    """The samples as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(RATE)
        output.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()
