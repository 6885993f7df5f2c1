"""Log-mel spectrograms, of the sound alone: what pads a window to its length is known beforehand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asr_core.types import Samples
from asr_whisper.policy import HOP

WIDTH = 400
"""Samples of a frame, 25 ms; frames are centred on multiples of the hop."""

FLOOR = 1e-10
"""Power that counts as none."""

RANGE = 8.0
"""Powers of ten below the loudest, where everything quieter is cut off."""

BLOCK = 250
"""Frames at once, in a megabyte: as many windows as there are threads are computed at the same time."""

HANN = np.hanning(WIDTH + 1)[:-1].astype(np.float32)


def log_mel(samples: Samples, filters: npt.NDArray[np.float32], frames: int) -> npt.NDArray[np.float32]:
    """Of shape [mels, frames], for at most that many hops of samples and ``filters`` of shape [frequencies, mels].

    Computes what transformers' WhisperFeatureExtractor and OpenAI's package compute of samples padded with zeros.
    """
    count = min(frames, (len(samples) + WIDTH // 2) // HOP + 1)
    padded = np.pad(samples, (0, min(WIDTH, frames * HOP - len(samples))))
    centred = np.pad(padded, WIDTH // 2, mode="reflect")
    stretches = np.lib.stride_tricks.sliding_window_view(centred, WIDTH)[::HOP][:count]
    logs = np.full((len(filters[0]), frames), np.log10(FLOOR), np.float32)
    for start in range(0, count, BLOCK):
        spectrum = np.fft.rfft(stretches[start : start + BLOCK] * HANN, axis=1)
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        logs[:, start : start + len(power)] = np.log10(np.maximum(power.astype(np.float32) @ filters, FLOOR)).T
    np.maximum(logs, logs.max() - RANGE, out=logs)
    logs += 4.0
    logs /= 4.0
    return logs
