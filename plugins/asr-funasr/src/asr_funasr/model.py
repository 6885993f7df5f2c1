"""The weights as the core's engine wants them, and the encoder's batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, FunAsrNanoForConditionalGeneration
from transformers.models.fun_asr_nano.modeling_fun_asr_nano import (
    FunAsrNanoMultiModalProjector,
    FunAsrNanoPreTrainedModel,
)

from asr_core.checkpoints import WEIGHT_FILES, Pretrained, load_module
from asr_core.engines.torch import CausalDecoder
from asr_core.errors import CheckpointError, EngineError
from asr_core.kernels import Numbers, pack_linears
from asr_core.types import Feature, Weights


class Ears(FunAsrNanoPreTrainedModel):
    """The checkpoint without its language model: audio tower and projector under their own names."""

    _keys_to_ignore_on_load_unexpected = (r"language_model\.", r"lm_head\.")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.audio_tower = AutoModel.from_config(config.audio_config)
        self.multi_modal_projector = FunAsrNanoMultiModalProjector(config)
        self.post_init()


def load_weights(checkpoint: Pretrained, parts: frozenset[str], device: str, dtype: str) -> Weights:
    """Audio tower with projector, and the language model behind the adapter for causal decoders.

    Raises:
        CheckpointError: files missing or damaged, or a dtype that the model cannot bear.
    """
    if dtype == "float16":
        raise CheckpointError(
            "Fun-ASR-Nano overflows to NaN in float16, whose largest number is 65504: use bfloat16, or float32",
            param="dtype",
        )
    directory = checkpoint.fetch(WEIGHT_FILES)
    numbers = Numbers.of(dtype, device)
    whole = FunAsrNanoForConditionalGeneration if "decoder" in parts else Ears
    module = load_module(whole, directory, numbers.dtype, device)
    pack_linears(module, numbers.linear)
    if "decoder" not in parts:
        return Weights(encoder=module)
    decoder = CausalDecoder(module.model.language_model, module.lm_head)
    return Weights(module.model if "encoder" in parts else None, decoder)


def encode_batch(encoder: Any, features: Sequence[Feature]) -> list[torch.Tensor]:
    """Rows of shape [length, width] in the language model's embedding space, for features of shape [length, n].

    Raises:
        EngineError: a row is not finite, which must reach no cache.
    """
    weight = next(encoder.parameters())
    padded = pad_sequence([torch.from_numpy(feature.data) for feature in features], batch_first=True)
    lengths = torch.tensor([feature.length for feature in features])
    mask = (torch.arange(padded.shape[1]) < lengths[:, None]).to(weight.device)
    heard = encoder.audio_tower(padded.to(weight.device, weight.dtype), input_features_mask=mask).last_hidden_state
    batch = encoder.multi_modal_projector(heard, mask)
    rows = [batch[number, : feature.length] for number, feature in enumerate(features)]
    if not all(torch.isfinite(one).all() for one in rows):
        raise EngineError(
            "the encoder computed values that are not finite: damaged weights, or a dtype too narrow", layer="encoder"
        )
    return rows
