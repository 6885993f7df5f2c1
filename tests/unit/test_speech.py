"""What is voiced: sound well above the noise, at any level of either."""

from __future__ import annotations

import numpy as np
import pytest

from asr_core.speech import Voice, is_silent, unvoiced_share
from asr_core.types import Samples

RATE, FLOOR = 16_000, 1e-3


def noise(seconds: float, level: float) -> Samples:
    samples = np.random.default_rng(1).uniform(-level, level, round(seconds * RATE))
    return samples.astype(np.float32)


@pytest.mark.parametrize("level", [0.0, 0.0005, 0.003, 0.05])
def test_sound_above_the_noise_is_voiced_to_the_frame(level: float) -> None:
    sound = noise(10, level)
    sound[3 * RATE : 5 * RATE] = noise(2, 0.5)
    voice = Voice.of(sound, RATE, FLOOR)
    assert voice.ms(0, 10_000) == voice.ms(3000, 5000) == 2000
    assert voice.ms(4000, 4500) == 500


@pytest.mark.parametrize("level", [0.0005, 0.003, 0.5])
def test_steady_noise_is_not_voiced(level: float) -> None:
    assert Voice.of(noise(10, level), RATE, FLOOR).ms(0, 10_000) == 0


def test_what_stays_below_the_floor_is_not_voiced() -> None:
    sound = np.concatenate([noise(5, 0.0), noise(5, 0.0009)])
    assert Voice.of(sound, RATE, FLOOR).ms(0, 10_000) == 0


def test_nothing_is_silent() -> None:
    empty = np.zeros(0, np.float32)
    assert is_silent(empty, FLOOR)
    assert unvoiced_share(empty, RATE, FLOOR) == 1.0
    assert Voice.of(empty, RATE, FLOOR).ms(0, 1000) == 0


def test_the_share_without_sound_counts_frames() -> None:
    assert unvoiced_share(np.concatenate([noise(1, 0.5), noise(3, 0.0)]), RATE, FLOOR) == 0.75
