"""Windows of a clip: cut by whole numbers, encoded in any company, kept while they stand and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen3ASRForConditionalGeneration, Qwen3ASRProcessor

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.types import Clip, Samples
from asr_qwen3.frontend import Frontend, extract_features
from asr_qwen3.model import encode_batch
from asr_qwen3.windows import Windows

ATOL = 1e-5
"""Order of float32 sums; rows are of the order of 1."""


def clip_of(samples: Samples) -> Clip:
    return audio.from_array(samples, 16_000, 16_000).clip()


def rows(model: Transcriber, samples: Samples) -> list[np.ndarray]:
    """Rows of every window, by way of the encoder service and its cache."""
    served, clip = model.served, clip_of(samples)
    spans = served.model.frontend.windows.spans(len(samples))
    return [encoded.rows.numpy() for encoded in asyncio.run(served.encoder.encode(clip, spans))]


def counters(model: Transcriber) -> tuple[int, int]:
    statistics = model.served.encoder.statistics()
    return statistics.hits, statistics.misses


@pytest.fixture
def fresh(checkpoint: Path) -> Iterator[Transcriber]:
    """A model that has heard nothing yet."""
    with load(str(checkpoint), device="cpu", dtype="float32") as transcriber:
        yield transcriber


@pytest.fixture
def pause(reading: Samples) -> Samples:
    """4.1 s, two windows and a little, with digital silence at the beginning: there the clamp shows."""
    return np.concatenate([np.zeros(16_000, np.float32), reading[:49_600]])


@given(samples=st.integers(1, 30 * 16_000), window=st.sampled_from([100, 200, 800]))
def test_windows_cover_the_clip_once(samples: int, window: int) -> None:
    windows = Windows(hop=160, chunk=100, window=window, min_samples=8000)
    spans = windows.spans(samples)
    frames = [windows.bounds(span, samples) for span in spans]
    assert [one.start for one in frames] == [0, *(one.stop for one in frames[:-1])]
    assert frames[-1].stop == windows.frames(samples)
    assert sum(span.tokens for span in spans) == windows.rows(windows.frames(samples))
    assert all(span.tokens > 0 for span in spans)
    assert all(0 <= span.start_sample <= span.end_sample <= samples for span in spans)


def test_eight_seconds_are_a_window_of_104_rows() -> None:
    windows = Windows(hop=160, chunk=100, window=800, min_samples=8000)
    assert [span.tokens for span in windows.spans(20 * 16_000)] == [104, 104, 52]


def test_rows_are_those_of_the_reference(
    fresh: Transcriber,
    module: Qwen3ASRForConditionalGeneration,
    processor: Qwen3ASRProcessor,
    reading: Samples,
) -> None:
    for samples in (1_000, 32_000, 100_000):
        inputs = processor.apply_transcription_request(reading[:samples], processor_kwargs={"sampling_rate": 16_000})
        with torch.no_grad():
            expected = module.get_audio_features(inputs.input_features, inputs.input_features_mask).pooler_output
        np.testing.assert_allclose(np.concatenate(rows(fresh, reading[:samples])), expected.numpy(), atol=ATOL)


@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1_000, 100_000), min_size=2, max_size=6))
def test_company_changes_no_row(
    model: Transcriber, frontend: Frontend, reading: Samples, lengths: Sequence[int]
) -> None:
    """Windows of unequal clips in one batch; the reference's own batches of unequal clips differ."""
    features = []
    for length in lengths:
        clip = clip_of(reading[:length])
        features += extract_features(frontend, clip, frontend.windows.spans(length))
    encoder = model.served.model.weights.encoder
    together = encode_batch(encoder, frontend.windows, features)
    for feature, found in zip(features, together, strict=True):
        (alone,) = encode_batch(encoder, frontend.windows, [feature])
        assert found.shape == alone.shape
        np.testing.assert_allclose(found.numpy(), alone.numpy(), atol=ATOL)


def test_a_clip_hears_nothing_around_it(frontend: Frontend, reading: Samples) -> None:
    whole, alone = clip_of(reading).waveform.clip(20_000, 90_000), clip_of(reading[20_000:90_000])
    spans = frontend.windows.spans(70_000)
    for part, same in zip(
        extract_features(frontend, whole, spans), extract_features(frontend, alone, spans), strict=True
    ):
        np.testing.assert_array_equal(part.data, same.data)


def test_a_clip_that_goes_on_quietly_keeps_its_windows(fresh: Transcriber, pause: Samples, reading: Samples) -> None:
    before = rows(fresh, pause)
    grown = np.concatenate([pause, 0.1 * reading[49_600:82_400]])
    after = rows(fresh, grown)
    assert counters(fresh) == (2, 3 + 2)
    for old, new in zip(before[:2], after[:2], strict=True):
        np.testing.assert_array_equal(old, new)
    assert len(after) == 4


def test_a_loud_sound_later_changes_what_came_before(
    fresh: Transcriber, checkpoint: Path, pause: Samples, reading: Samples
) -> None:
    before = rows(fresh, pause)
    grown = np.concatenate([pause, 10 * reading[49_600:82_400]])
    after = rows(fresh, grown)
    assert np.abs(after[0] - before[0]).max() > 100 * ATOL
    with load(str(checkpoint), device="cpu", dtype="float32") as other:
        for found, afresh in zip(after, rows(other, grown), strict=True):
            np.testing.assert_allclose(found, afresh, atol=ATOL)


def test_a_window_is_final_only_when_the_clip_has_gone_on(fresh: Transcriber, reading: Samples) -> None:
    """The last two frames of a clip see padding, so the window that ends with it is computed again."""
    rows(fresh, reading[:64_000])
    rows(fresh, np.concatenate([reading[:64_000], 0.1 * reading[64_000:70_000]]))
    assert counters(fresh) == (1, 2 + 2)
