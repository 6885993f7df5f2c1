"""The weights as the core's engine wants them, and the encoder's batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import MossTranscribeDiarizeForConditionalGeneration

from asr_core.checkpoints import WEIGHT_FILES, Pretrained, load_module
from asr_core.engines.torch import CausalDecoder
from asr_core.kernels import Numbers, pack_linears
from asr_core.types import Feature, Weights
from asr_moss.config import MossConfig


def load_weights(checkpoint: Pretrained, parts: frozenset[str], device: str, dtype: str) -> Weights:
    """The module without its language model, which stands behind the adapter; a part nobody asked for is let go.

    Raises:
        CheckpointError: files missing or damaged.
    """
    numbers = Numbers.of(dtype, device)
    module = load_module(
        MossTranscribeDiarizeForConditionalGeneration, checkpoint.fetch(WEIGHT_FILES), numbers.dtype, device
    )
    pack_linears(module, numbers.linear)
    encoder = module.model
    language_model, encoder.language_model = encoder.language_model, None
    decoder = CausalDecoder(language_model, module.lm_head) if "decoder" in parts else None
    return Weights(encoder if "encoder" in parts else None, decoder)


def encode_batch(encoder: Any, config: MossConfig, features: Sequence[Feature]) -> list[torch.Tensor]:
    """Rows of shape [span.tokens, width] per log-mel of shape [mels, frames of a block]."""
    weight = next(encoder.audio_tower.parameters())
    mels = torch.from_numpy(np.stack([feature.data for feature in features])).to(weight.device, weight.dtype)
    lengths = torch.tensor([[feature.length] for feature in features], device=weight.device)
    mask = torch.arange(mels.shape[-1], device=weight.device) < lengths
    # The padding mask is asked for and not looked at.
    rows = encoder.get_audio_features(mels, input_features_mask=mask, padding_mask=mask).pooler_output
    return list(rows.split([config.rows(feature.length) for feature in features]))
