"""Arrays from Python callers to one waveform."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asr_core.audio._decode import Block
from asr_core.audio._limits import DEFAULT_LIMITS
from asr_core.audio._mix import check_header, mean
from asr_core.audio._track import Track
from asr_core.audio._waveform import waveform
from asr_core.errors import AudioTooLongError, CorruptAudioError, NoAudioError
from asr_core.types import UploadLimits, Waveform

_BLOCK = 1 << 20


def from_array(
    samples: npt.NDArray[Any], source_rate: int, rate: int, limits: UploadLimits = DEFAULT_LIMITS
) -> Waveform:
    """Make a waveform of ``samples`` at ``source_rate`` Hz, shape [n] or [n, channels], as soundfile reads them.

    Integers are scaled by the full scale of their type (unsigned ones have silence in the middle), floats are kept as
    they are. CorruptAudioError for NaN, infinity, another shape or another type; the array is copied.
    """
    columns = _columns(np.asarray(samples))
    check_header(source_rate, columns.shape[1])
    if len(columns) > limits.max_seconds * source_rate:
        seconds = len(columns) / source_rate
        raise AudioTooLongError(
            f"{seconds:.1f} s of audio are longer than the {limits.max_seconds:g} s limit.", setting="max_seconds"
        )
    _check_finite(columns)
    silence, full_scale = _scale(columns.dtype)
    track = Track(rate, limits.max_seconds)
    for start in range(0, len(columns), _BLOCK):
        block = columns[start : start + _BLOCK]
        track.add(Block(mean(list(block.T), silence, full_scale), source_rate))
    return waveform(track.finish(), rate, limits)


def _columns(samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if samples.ndim not in (1, 2):
        raise CorruptAudioError(f"Samples must have the shape [n] or [n, channels], not {list(samples.shape)}.")
    if samples.size == 0:
        raise NoAudioError("The array of samples is empty.")
    return samples[:, np.newaxis] if samples.ndim == 1 else samples


def _check_finite(columns: npt.NDArray[Any]) -> None:
    if columns.dtype.kind != "f" or (good := np.isfinite(columns)).all():
        return
    rows = np.flatnonzero(~good.all(axis=1))
    count = int((~good).sum())
    raise CorruptAudioError(f"{count} samples are NaN or infinite, the first at index {rows[0]}.")


def _scale(dtype: np.dtype[Any]) -> tuple[int, float]:
    """Value of silence and full scale of ``dtype``."""
    if dtype.kind == "f":
        return 0, 1.0
    if dtype.kind not in "iu":
        raise CorruptAudioError(f"Samples must be integers or floats, not {dtype}.")
    half = 2 ** (8 * dtype.itemsize - 1)
    return (half if dtype.kind == "u" else 0), float(half)
