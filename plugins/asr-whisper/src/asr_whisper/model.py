"""The weights as the core's engine wants them, and the encoder's batch."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from asr_core.kernels import Numbers
from asr_core.types import Checkpoint, Feature, Weights
from asr_whisper.decoder import WhisperDecoder
from asr_whisper.encoder import Encoder
from asr_whisper.weights import open_module
from asr_whisper.window import Window


def load_weights(checkpoint: Checkpoint, parts: frozenset[str], device: str, dtype: str) -> Weights:
    """Encoder and decoder; transformers reads the weights, which the layouts of its modules would keep twice."""
    numbers = Numbers.of(dtype, device)
    module = open_module(checkpoint, numbers.dtype, device, parts)
    return Weights(
        Encoder(module.model.encoder, numbers.linear) if "encoder" in parts else None,
        WhisperDecoder(module.model.decoder, module.proj_out, module.config.max_source_positions, numbers.linear)
        if "decoder" in parts
        else None,
    )


def encode_batch(encoder: Encoder, features: Sequence[Feature]) -> Generator[None, None, list[torch.Tensor]]:
    """Encoder rows of shape [rows of the window, width] per log-mel of shape [mels, frames]; yields between layers.

    One by one: windows differ, and what one of them computes between two products stays in a processor's caches.
    """
    context, encoded = len(encoder.positions), list[torch.Tensor]()
    for feature in features:
        mels, window = torch.from_numpy(feature.data)[None], Window.of_frames(feature.length, context)
        (rows,) = yield from encoder.in_parts(mels, window)
        encoded.append(rows)
        yield
    return encoded
