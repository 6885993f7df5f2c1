"""The encoder against transformers' own, on its weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu
from transformers import WhisperForConditionalGeneration

from asr_core.types import Feature, Samples
from asr_whisper.encoder import Convolution, Encoder
from asr_whisper.frontend import Frontend
from asr_whisper.model import encode_batch
from asr_whisper.window import STRIDE, Window

from .conftest import features
from .tiny import FRAMES, WIDTH, distance, repeated, whisper, whole

POSITIONS = FRAMES // 2


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield


def mels(windows: int, channels: int = 8, frames: int = FRAMES) -> torch.Tensor:
    return torch.randn(windows, channels, frames, generator=torch.Generator().manual_seed(windows))


@pytest.mark.parametrize("windows", [1, 2, 5])
def test_rows_are_those_of_transformers(windows: int) -> None:
    theirs = whisper().model.encoder
    found = whole(Encoder(theirs).in_parts(mels(windows), Window(POSITIONS, thinned=0)))
    torch.testing.assert_close(found, theirs(mels(windows)).last_hidden_state, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("thinned", [1, 2])
def test_a_position_that_stands_for_others_counts_as_they_would(thinned: int) -> None:
    """Transformers' layers over a window in which it stands in the place of each, behind the end of all sound."""
    theirs, window = whisper().model.encoder, Window(POSITIONS, thinned)
    sounds = mels(2)
    sounds[..., 2 * (window.whole - 1) :] = -0.5
    found = whole(Encoder(theirs).in_parts(sounds, window))
    assert found.shape == (2, POSITIONS - thinned * (STRIDE - 1), WIDTH)
    hidden = gelu(theirs.conv2(gelu(theirs.conv1(sounds)))).transpose(1, 2) + theirs.embed_positions.weight
    hidden = hidden[:, repeated(window.positions, POSITIONS)]
    for layer in theirs.layers:
        hidden = layer(hidden, None)
    assert hidden.shape[1] == POSITIONS
    expected = torch.stack([repeated(rows, POSITIONS) for rows in found])
    torch.testing.assert_close(theirs.layer_norm(hidden), expected, atol=2e-5, rtol=1e-4)


def test_a_batch_is_its_windows_in_any_company() -> None:
    """Those of which less sounds give fewer rows."""
    encoder = Encoder(whisper(frames=400).model.encoder)
    batch = [Feature(one.numpy(), length=80 * number) for number, one in enumerate(mels(6, frames=400))]
    together = whole(encode_batch(encoder, batch))
    assert len({len(rows) for rows in together}) > 2
    for one, rows in zip(batch, together, strict=True):
        torch.testing.assert_close(rows, whole(encode_batch(encoder, [one]))[0], atol=1e-5, rtol=1e-5)


def test_a_part_is_a_layer_at_most() -> None:
    encoder, batch = Encoder(whisper().model.encoder), [Feature(one.numpy(), length=FRAMES) for one in mels(2)]
    calls: list[int] = []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    parts = encode_batch(encoder, batch)
    for _ in range(len(batch) * (len(encoder.layers) + 1)):
        before = len(calls)
        next(parts)
        assert len(calls) <= before + 1
    assert len(whole(parts)) == len(batch)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (5, 3, 2)])
@pytest.mark.parametrize("frames", [7, 8, 9])
def test_convolutions_are_those_of_torch(kernel: int, stride: int, padding: int, frames: int) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Conv1d(6, 10, kernel, stride, padding)
    heard = torch.randn(2, 6, frames)
    torch.testing.assert_close(Convolution(theirs)(heard.transpose(1, 2)).transpose(1, 2), theirs(heard))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_speech_through_base(
    transformers_base: WhisperForConditionalGeneration, frontend: Frontend, reading: Samples, dtype: torch.dtype
) -> None:
    """Rounded as theirs would be."""
    heard = features(frontend, reading)
    exact = transformers_base.model.encoder(heard).last_hidden_state[0]
    rounded = copy.deepcopy(transformers_base.model.encoder).to(dtype)
    (rows,) = whole(encode_batch(Encoder(rounded), [Feature(heard[0].numpy(), length=heard.shape[-1])]))
    assert rows.dtype == dtype
    theirs = rounded(heard.to(dtype)).last_hidden_state[0]
    assert distance(rows, exact) < max(1e-5, 2 * distance(theirs, exact))
