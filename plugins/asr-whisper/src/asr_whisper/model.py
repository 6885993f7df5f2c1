"""The weights as the core's engine wants them, and the encoder's batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from asr_core.engines.torch import CrossDecoder
from asr_core.types import Checkpoint, Feature, Weights
from asr_whisper.weights import open_module


def load_weights(checkpoint: Checkpoint, parts: frozenset[str], device: str, dtype: str) -> Weights:
    """The encoder module, and the decoder behind the adapter for cross attention."""
    module = open_module(checkpoint, dtype, device, parts)
    decoder = CrossDecoder(module.model.decoder, module.proj_out) if "decoder" in parts else None
    return Weights(module.model.encoder, decoder)


def encode_batch(encoder: torch.nn.Module, features: Sequence[Feature]) -> list[torch.Tensor]:
    """Encoder rows of shape [positions, width] per log-mel of shape [mels, frames]."""
    weight = next(encoder.parameters())
    batch = torch.from_numpy(np.stack([feature.data for feature in features])).to(weight.device, weight.dtype)
    return list(encoder(batch).last_hidden_state)
