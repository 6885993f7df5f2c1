"""One decoded frame to mono float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asr_core.errors import CorruptAudioError
from asr_core.types import Samples

MIN_RATE = 1000
MAX_RATE = 768_000
MAX_CHANNELS = 64

# FFmpeg's sample format without the p of planar: type, value of silence, full scale.
_FORMATS = {
    "u8": ("u1", 128, 2.0**7),
    "s16": ("i2", 0, 2.0**15),
    "s32": ("i4", 0, 2.0**31),
    "s64": ("i8", 0, 2.0**63),
    "flt": ("f4", 0, 1.0),
    "dbl": ("f8", 0, 1.0),
}


def check_header(rate: int, channels: int) -> None:
    """Raise CorruptAudioError for a sample rate or a number of channels that no recording has."""
    if not MIN_RATE <= rate <= MAX_RATE:
        raise CorruptAudioError(f"A sample rate of {rate} Hz is outside {MIN_RATE} to {MAX_RATE} Hz.")
    if not 1 <= channels <= MAX_CHANNELS:
        raise CorruptAudioError(f"{channels} channels are outside 1 to {MAX_CHANNELS}.")


def mono(frame: Any) -> Samples:
    """Mean of the channels of an :class:`av.AudioFrame`, full scale 1.0, shape [frame.samples].

    Not FFmpeg's matrix, which weighs channels by their place and scales all down so that the sum cannot clip: here a
    sound that is on all channels keeps its level exactly.
    """
    name = frame.format.name
    try:
        dtype, silence, full_scale = _FORMATS[name.removesuffix("p")]
    except KeyError:
        raise CorruptAudioError(f"Samples of the kind {name} are not supported.") from None
    return mean(_channels(frame, dtype), silence, full_scale)


def mean(channels: list[npt.NDArray[Any]], silence: int, full_scale: float) -> Samples:
    """Mean of equally long channels, less ``silence``, divided by ``full_scale``; not finite where the input is not."""
    wide: type[np.floating] = np.float64 if channels[0].dtype.itemsize == 8 else np.float32
    # Sums of foreign floats may overflow; whoever takes the result looks for that.
    with np.errstate(over="ignore", invalid="ignore"):
        total: npt.NDArray[Any] = channels[0].astype(wide)
        for channel in channels[1:]:
            total += channel
        if silence:
            total -= silence * len(channels)
        total *= 1.0 / (full_scale * len(channels))
        return total.astype(np.float32, copy=False)


def _channels(frame: Any, dtype: str) -> list[npt.NDArray[Any]]:
    # Not frame.planes, nor frame.to_ndarray(), which reads planes until a null pointer: with 8 channels or more there
    # is none, and the process dies of a segmentation fault.
    from av.audio.plane import AudioPlane

    count = frame.layout.nb_channels
    if frame.format.is_planar:
        planes: list[Any] = [AudioPlane(frame, index) for index in range(count)]
        return [np.frombuffer(plane, dtype, frame.samples) for plane in planes]
    plane: Any = AudioPlane(frame, 0)
    packed = np.frombuffer(plane, dtype, frame.samples * count)
    return [packed[index::count] for index in range(count)]
