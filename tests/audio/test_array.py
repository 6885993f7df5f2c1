from __future__ import annotations

import numpy as np
import pytest

from asr_core.audio import from_array
from asr_core.errors import AudioTooLongError, AudioTooShortError, CorruptAudioError, NoAudioError
from asr_core.types import UploadLimits


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int8", [-128, 64, 0]),
        ("int16", [-32768, 16384, 0]),
        ("int32", [-(2**31), 2**30, 0]),
        ("int64", [-(2**63), 2**62, 0]),
        ("uint8", [0, 192, 128]),
        ("uint16", [0, 49152, 32768]),
        ("uint32", [0, 3 * 2**30, 2**31]),
        ("float16", [-1.0, 0.5, 0.0]),
        ("float32", [-1.0, 0.5, 0.0]),
        ("float64", [-1.0, 0.5, 0.0]),
    ],
)
def test_every_type_has_its_full_scale(dtype: str, values: list[float]) -> None:
    assert from_array(np.array(values, dtype), 16000, 16000).samples.tolist() == [-1.0, 0.5, 0.0]


def test_channels_are_the_last_axis() -> None:
    stereo = np.array([[1.0, 0.0], [0.5, 0.5], [-1.0, 1.0]])
    assert from_array(stereo, 16000, 16000).samples.tolist() == [0.5, 0.5, 0.0]


def test_the_array_stays_the_callers() -> None:
    mine = np.zeros(100, np.float32)
    waveform = from_array(mine, 16000, 16000)
    mine[:] = 1.0
    assert not waveform.samples.any()


def test_what_is_not_finite_is_counted_and_located() -> None:
    samples = np.zeros(1000)
    samples[[300, 400, 500]] = [np.nan, np.inf, -np.inf]
    with pytest.raises(CorruptAudioError, match="3 samples are NaN or infinite, the first at index 300"):
        from_array(samples, 16000, 16000)


@pytest.mark.parametrize(
    "samples", [np.zeros((2, 3, 4)), np.array("text"), np.array(["a"]), np.zeros(10, complex), np.zeros((10, 65))]
)
def test_other_shapes_and_types_are_refused(samples: np.ndarray) -> None:
    with pytest.raises(CorruptAudioError):
        from_array(samples, 16000, 16000)


@pytest.mark.parametrize("shape", [0, (0, 2), (10, 0)])
def test_empty_arrays_are_refused(shape: int | tuple[int, int]) -> None:
    with pytest.raises(NoAudioError):
        from_array(np.zeros(shape), 16000, 16000)


@pytest.mark.parametrize("rate", [0, -16000, 999, 10**9])
def test_absurd_rates_are_refused(rate: int) -> None:
    with pytest.raises(CorruptAudioError):
        from_array(np.zeros(10), rate, 16000)


def test_the_limit_of_seconds_holds_for_arrays() -> None:
    limits = UploadLimits(max_seconds=1.0)
    assert len(from_array(np.zeros(8000), 8000, 16000, limits).samples) == 16000
    with pytest.raises(AudioTooLongError):
        from_array(np.zeros(8001), 8000, 16000, limits)


def test_less_than_an_endpoint_takes_is_refused() -> None:
    limits = UploadLimits()
    with pytest.raises(AudioTooShortError, match=r"lasts 0.0999 s, and 0.1 s") as raised:
        from_array(np.zeros(1599, np.float32), 16000, 16000, limits)
    assert (raised.value.param, raised.value.layer) == ("file", "upload_limits")
    assert len(from_array(np.zeros(1600, np.float32), 16000, 16000, limits).samples) == 1600
