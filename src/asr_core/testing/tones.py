"""Text as sound that a few lines can read back: every byte is a pair of tones.

A byte lasts 80 ms: 50 ms of a low tone (its upper half) and a high tone (its lower half), then 30 ms of silence. Tones
are multiples of 100 Hz, so over a frame of 10 ms all of them are orthogonal, and the silence keeps bytes apart wherever
the sound is cut.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

RATE = 16_000
FRAME = 160
"""Samples per frame of 10 ms."""

TONE_FRAMES, GAP_FRAMES = 5, 3
LOW = 300 + 200 * np.arange(16)
HIGH = 3700 + 200 * np.arange(16)
SILENT = 256
"""What a frame without tones is read as."""

_AMPLITUDE = 0.25
_HEARD = 0.05
"""A tone below this amplitude is not heard; half a frame of tone still is."""


def speak(text: str) -> npt.NDArray[np.float32]:
    """``text`` as mono float32 at 16 kHz, 12.5 bytes of UTF-8 a second."""
    time = np.arange(TONE_FRAMES * FRAME) / RATE
    gap = np.zeros(GAP_FRAMES * FRAME)
    sound = [gap]
    for byte in text.encode():
        high, low = divmod(byte, 16)
        tones = np.sin(2 * np.pi * LOW[high] * time) + np.sin(2 * np.pi * HIGH[low] * time)
        sound += [_AMPLITUDE * tones, gap]
    return np.concatenate(sound).astype(np.float32)


def frames(samples: int) -> int:
    """Frames that ``samples`` fill, the last one perhaps in part."""
    return -(-samples // FRAME)


def tone_amplitudes(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Amplitude of each of the 32 tones, low ones first, in every frame: shape [frames, 32]."""
    padded = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(FRAME), np.concatenate([LOW, HIGH])) / RATE)
    amplitudes: npt.NDArray[np.float32] = (np.abs(padded @ waves) * 2 / FRAME).astype(np.float32)
    return amplitudes


def read_frames(amplitudes: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """The byte each frame sounds, or :data:`SILENT`, from amplitudes of shape [frames, 32]."""
    low, high = amplitudes[:, :16], amplitudes[:, 16:]
    heard = np.minimum(low.max(axis=1), high.max(axis=1)) > _HEARD
    read: npt.NDArray[np.int64] = np.where(heard, 16 * low.argmax(axis=1) + high.argmax(axis=1), SILENT)
    return read
