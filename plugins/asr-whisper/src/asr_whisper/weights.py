"""A checkpoint of any kind becomes one module of transformers, with one copy of the weights in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import WhisperConfig as TransformersConfig
from transformers import WhisperForConditionalGeneration

from asr_core.checkpoints import WEIGHT_FILES, load_module, require_equal
from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint
from asr_whisper import ctranslate2, hub, layout, openai_pt
from asr_whisper.config import Dimensions, WhisperConfig
from asr_whisper.source import Source

if TYPE_CHECKING:
    from torch import nn

BOTH = frozenset({"encoder", "decoder"})


def open_module(
    checkpoint: Checkpoint, dtype: str, device: str, parts: frozenset[str] = BOTH
) -> WhisperForConditionalGeneration:
    """Weights of ``parts`` on ``device`` in ``dtype`` (``float32``, ``bfloat16``, ``float16``), ready to infer.

    A part that was not asked for is None in ``module.model``; without the decoder ``proj_out`` is None too.

    Raises:
        CheckpointError: files missing or damaged, a hash that differs, or weights missing or superfluous.
    """
    config: WhisperConfig = checkpoint.config
    if config.kind == "transformers":
        module = _from_transformers(config, dtype, device)
    else:
        module = _from_state(config.dims, _state(config, getattr(torch, dtype), device, parts), parts, checkpoint)
    _drop(module, BOTH - parts)
    module.requires_grad_(False)
    return module.eval()


def _from_transformers(config: WhisperConfig, dtype: str, device: str) -> WhisperForConditionalGeneration:
    directory = config.directory or hub.fetch_all(str(config.repository), WEIGHT_FILES)
    return load_module(WhisperForConditionalGeneration, directory, dtype, device)


def _state(
    config: WhisperConfig, dtype: torch.dtype, device: str, parts: frozenset[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    source = config.weights or Source((_fetched(str(config.repository)),))
    source.verify()
    if config.kind == "openai":
        return openai_pt.read_state(source, dtype, device, parts)
    return layout.read_state(ctranslate2.Index.read(source), config.dims, dtype, device, parts)


def _fetched(repository: str) -> Path:
    path = hub.fetch(repository, "model.bin", online=hub.reachable())
    if path is None:
        raise hub.unavailable(repository, "it has no model.bin")
    return path


def _from_state(
    dims: Dimensions, state: Iterator[tuple[str, torch.Tensor]], parts: frozenset[str], checkpoint: Checkpoint
) -> WhisperForConditionalGeneration:
    with torch.device("meta"):
        module = WhisperForConditionalGeneration(_architecture(dims))
    _drop(module, BOTH - parts)
    expected = {name: parameter.shape for name, parameter in module.model.named_parameters(prefix="model")}
    loaded = {}
    for name, tensor in state:
        if name in expected and tensor.shape != expected[name]:
            shapes = f"{tuple(tensor.shape)}, expected {tuple(expected[name])}"
            raise CheckpointError(f"{checkpoint.reference}: {name} is {shapes}")
        loaded[name] = tensor
    require_equal(checkpoint.reference, expected.keys() - loaded.keys(), loaded.keys() - expected.keys())
    # Assigning takes over what was read, where copying would hold it twice.
    module.load_state_dict(loaded, strict=False, assign=True)
    if "decoder" in parts:
        module.tie_weights()
    return module


def _architecture(dims: Dimensions) -> TransformersConfig:
    config = TransformersConfig(
        num_mel_bins=dims.mels,
        d_model=dims.text_width,
        encoder_layers=dims.audio_layers,
        encoder_attention_heads=dims.audio_heads,
        encoder_ffn_dim=dims.audio_hidden,
        max_source_positions=dims.audio_context,
        decoder_layers=dims.text_layers,
        decoder_attention_heads=dims.text_heads,
        decoder_ffn_dim=dims.text_hidden,
        max_target_positions=dims.text_context,
        vocab_size=dims.vocabulary,
        # Defaults of one vocabulary, which lie outside a smaller one; the engine stops by its own list.
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        decoder_start_token_id=0,
        begin_suppress_tokens=None,
    )
    config._attn_implementation = "sdpa"
    return config


def _drop(module: WhisperForConditionalGeneration, parts: frozenset[str]) -> None:
    for part in parts:
        nothing: nn.Module | None = None
        setattr(module.model, part, nothing)
    if "decoder" in parts:
        module.proj_out = None
