"""The weights as the core's engine wants them, and the encoder's batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Qwen3ASRForConditionalGeneration

from asr_core.checkpoints import WEIGHT_FILES, load_module
from asr_core.engines.torch import CausalDecoder
from asr_core.kernels import Numbers, pack_linears
from asr_core.types import Checkpoint, Feature, Weights
from asr_qwen3.windows import Windows


def load_weights(checkpoint: Checkpoint, parts: frozenset[str], device: str, dtype: str) -> Weights:
    """Audio tower with projector as the encoder, the language model behind the adapter for decoders.

    Raises:
        CheckpointError: files missing or damaged, or weights missing or superfluous.
    """
    numbers = Numbers.of(dtype, device)
    directory = checkpoint.config.fetch(WEIGHT_FILES)
    module = load_module(Qwen3ASRForConditionalGeneration, directory, numbers.dtype, device)
    pack_linears(module, numbers.linear)
    encoder, language_model, head = module.model, module.model.language_model, module.lm_head
    encoder.language_model = None  # so that who keeps the encoder alone keeps nothing else
    # Convolutions of six seconds take 62 ms instead of 78: the first has one channel and, so laid out, next to nothing.
    encoder.to(memory_format=torch.channels_last)
    return Weights(
        encoder if "encoder" in parts else None,
        CausalDecoder(language_model, head) if "decoder" in parts else None,
    )


def encode_batch(encoder: Any, windows: Windows, features: Sequence[Feature]) -> list[torch.Tensor]:
    """Rows of shape [span.tokens, width] per log-mel of shape [mels, frames]."""
    weight = next(encoder.parameters())
    longest = max(feature.length for feature in features)
    frames = -(-longest // windows.chunk) * windows.chunk
    # Zeros, as behind the end of a single clip: padded as sound, a batch of the extractor hears other things.
    mel = torch.zeros(len(features), len(features[0].data), frames)
    mask = torch.zeros(len(features), frames, dtype=torch.long)
    for number, feature in enumerate(features):
        mel[number, :, : feature.length] = torch.from_numpy(feature.data)
        mask[number, : feature.length] = 1
    packed = encoder.get_audio_features(mel.to(weight.device, weight.dtype), mask.to(weight.device)).pooler_output
    return list(packed.split([windows.rows(feature.length) for feature in features]))
