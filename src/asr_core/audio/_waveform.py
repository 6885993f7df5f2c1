"""Finished samples to the value that crosses the contract."""

from __future__ import annotations

import hashlib

from asr_core.errors import AudioTooShortError
from asr_core.types import Hole, Samples, UploadLimits, Waveform

_FINGERPRINT_BYTES = 16


def waveform(samples: Samples, rate: int, limits: UploadLimits, holes: tuple[Hole, ...] = ()) -> Waveform:
    """Freeze ``samples`` of shape [n] at ``rate`` Hz; they are read-only from here on, as caches go by their hash.

    Raises:
        AudioTooShortError: fewer of them than ``limits`` take.
    """
    if len(samples) < limits.min_seconds * rate:
        seconds = len(samples) / rate
        raise AudioTooShortError(
            f"The audio lasts {seconds:.3g} s, and {limits.min_seconds:g} s is the least taken.", setting="min_seconds"
        )
    samples.flags.writeable = False
    return Waveform(samples, rate, fingerprint(samples, rate), holes)


def fingerprint(samples: Samples, rate: int) -> bytes:
    """16 bytes, BLAKE2b over ``rate`` and the little-endian bytes of ``samples``."""
    digest = hashlib.blake2b(rate.to_bytes(8, "little"), digest_size=_FINGERPRINT_BYTES)
    digest.update(samples.astype("<f4", copy=False).data)
    return digest.digest()
