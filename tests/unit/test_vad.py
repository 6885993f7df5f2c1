"""Detectors of speech: the built-in one by what decibels are, the network by its package's own other form of it."""

from __future__ import annotations

import importlib.util
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from asr_core.audio import load
from asr_core.errors import PluginError
from asr_core.loading import open_detector
from asr_core.plugins import Plugins
from asr_core.vad import EnergyDetector

RATE = 16_000
SPEECH = Path(__file__).parents[1] / "data" / "librivox" / "0870.wav"


def tone(decibels: float, seconds: float, rate: int = RATE) -> npt.NDArray[Any]:
    """1 kHz, ``decibels`` below full scale."""
    time = np.arange(round(seconds * rate)) / rate
    return 10 ** (-decibels / 20) * np.cos(2 * np.pi * 1000 * time)


def scores(*parts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return EnergyDetector().scores(np.concatenate(parts).astype(np.float32), RATE)


@pytest.mark.parametrize("gain", [1.0, 0.01, 1e-30])
@pytest.mark.parametrize(("below", "score"), [(0, 1), (15, 0.75), (30, 0.5), (45, 0.25), (60, 0), (90, 0)])
def test_a_score_is_decibels_below_what_is_loud(below: float, score: float, gain: float) -> None:
    found = scores(gain * tone(0, 5), gain * tone(below, 0.5), gain * tone(0, 5))
    assert found.shape == (525,)
    np.testing.assert_allclose(found[250:275], score, atol=1e-3)
    np.testing.assert_allclose(found[:250], 1, atol=1e-3)


def test_nothing_scores_where_nothing_sounds() -> None:
    assert scores(np.zeros(16_001)).tolist() == [0] * 51
    assert scores(np.zeros(0)).shape == (0,)


def test_neither_a_click_nor_long_silence_is_what_loud_is_measured_by() -> None:
    speech = tone(40, 2)
    speech[100] = 1.0
    found = scores(np.zeros(300 * RATE), speech, np.zeros(300 * RATE))
    np.testing.assert_allclose(found[15_001:15_100], 1, atol=1e-3)
    assert not found[:15_000].any()


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100])
def test_frames_are_20_ms_at_any_rate(rate: int) -> None:
    sound = np.concatenate([np.zeros(rate), tone(0, 1.01, rate)]).astype(np.float32)
    found = EnergyDetector().scores(sound, rate)
    assert found.shape == (101,)
    assert not found[:50].any()
    np.testing.assert_allclose(found[50:], 1, atol=0.01)


def test_four_hours_are_not_copied() -> None:
    sound = np.zeros(4 * 3600 * RATE, np.float32)
    sound[::7000] = 0.5
    tracemalloc.start()
    try:
        found = EnergyDetector().scores(sound, RATE)
        assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    finally:
        tracemalloc.stop()
    assert len(found) == 720_000


# The network


@pytest.fixture
def silero() -> Any:
    pytest.importorskip("onnxruntime")
    if importlib.util.find_spec("silero_vad") is None:
        pytest.skip("silero-vad is not installed")
    return open_detector(Plugins.discover().detector("silero"))


def original(samples: npt.NDArray[Any]) -> list[float]:
    """The package's other form of the network: TorchScript that keeps its own state, one frame after another."""
    import torch

    (place,) = importlib.util.find_spec("silero_vad").submodule_search_locations  # type: ignore[union-attr]
    network = torch.jit.load(str(Path(place, "data", "silero_vad.jit")))
    padded = np.pad(samples, (0, -len(samples) % 512)).reshape(-1, 1, 512)
    with torch.inference_mode():
        return [network(frame, RATE).item() for frame in torch.from_numpy(padded)]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("seconds", [0.01, 7.1, 17.0])
def test_its_scores_are_those_of_the_original(silero: Any, seconds: float) -> None:
    samples = np.resize(load(str(SPEECH), RATE).samples, round(seconds * RATE))
    expected = original(samples)
    assert len(expected) == -(-len(samples) // 512)
    np.testing.assert_allclose(silero.scores(samples, RATE), expected, atol=1e-5)


@pytest.mark.parametrize("rate", [24_000, 44_100, 48_000])
def test_other_rates_are_heard_at_its_own(silero: Any, rate: int) -> None:
    found = silero.scores(load(str(SPEECH), rate).samples, rate)
    expected = silero.scores(load(str(SPEECH), RATE).samples, RATE)
    assert np.mean((found > 0.5) == (expected > 0.5)) > 0.99


def test_it_tells_speech_from_noise_as_loud(silero: Any) -> None:
    speech = load(str(SPEECH), RATE).samples
    noise = np.random.default_rng(5).normal(0, speech.std(), 5 * RATE).astype(np.float32)
    found = silero.scores(np.concatenate([speech, noise]), RATE)
    border = len(speech) // 512
    assert np.mean(found[:border] > 0.5) > 0.8
    assert np.mean(found[border + 10 :] > 0.5) < 0.05


def test_calls_do_not_disturb_one_another(silero: Any) -> None:
    speech = load(str(SPEECH), RATE).samples
    before = silero.scores(speech, RATE)
    assert silero.scores(speech[:0], RATE).shape == (0,)
    silero.scores(np.ones(RATE, np.float32), RATE)
    assert np.array_equal(silero.scores(speech, RATE), before)


@pytest.mark.parametrize("missing", ["onnxruntime", "silero_vad"])
def test_without_its_packages_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # how Python marks what cannot be imported
    with pytest.raises(PluginError, match=r'pip install "asr-core\[silero\]"'):
        open_detector(Plugins.discover().detector("silero"))
