"""A small random checkpoint, built and saved the way a real one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    Qwen2Tokenizer,
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
    Qwen3ASRProcessor,
)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>")
ADDED = ("<asr_text>", "<tool_call>")
MELS = 32
WINDOW = 200
"""Frames per attention window: 2 s, so that short clips have several."""

TEMPLATE = """
{%- set heard = namespace(words='') -%}
{%- for message in messages if message.role == 'system' -%}
  {%- for part in message.content if part.type == 'text' -%}
    {%- set heard.words = heard.words + part.text -%}
  {%- endfor -%}
{%- endfor -%}
{{- '<|im_start|>system\\n' + heard.words + '<|im_end|>\\n' -}}
{%- for message in messages if message.role != 'system' -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- for part in message.content -%}
    {%- if part.type == 'audio' -%}
      {{- '<|audio_start|><|audio_pad|><|audio_end|>' -}}
    {%- else -%}
      {{- part.text -}}
    {%- endif -%}
  {%- endfor -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
"""In the spirit of the published one: a system turn in any case, the sound in the user's."""


def processor(tokenizer: Any, **extractor: Any) -> Qwen3ASRProcessor:
    """A processor around a tokenizer of the library ``tokenizers``."""
    names = {"audio_token": "<|audio_pad|>", "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>"}
    return Qwen3ASRProcessor(
        Qwen3ASRFeatureExtractor(**{"feature_size": MELS, **extractor}),
        Qwen2Tokenizer(
            tokenizer_object=tokenizer,
            extra_special_tokens=names,
            eos_token="<|im_end|>",  # noqa: S106 - tokens of the vocabulary
            pad_token="<|endoftext|>",  # noqa: S106
        ),
        chat_template=TEMPLATE,
    )


def config(processor: Qwen3ASRProcessor, *, window: int = WINDOW, context: int = 4096, **text: Any) -> Qwen3ASRConfig:
    """Two layers on each side."""
    ids = processor.tokenizer.convert_tokens_to_ids
    return Qwen3ASRConfig(
        audio_config={
            "model_type": "qwen3_asr_encoder",
            "num_mel_bins": processor.feature_extractor.mel_filters.shape[1],
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "d_model": 32,
            "downsample_hidden_size": 8,
            "output_dim": 48,
            "n_window_infer": window,
            "initializer_range": 0.2,
        },
        text_config={
            "model_type": "qwen3",
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": context,
            "tie_word_embeddings": True,
            "vocab_size": len(processor.tokenizer) + 8,
            "initializer_range": 0.2,
            **text,
        },
        initializer_range=0.2,
        audio_token_id=ids("<|audio_pad|>"),
        eos_token_id=[ids("<|endoftext|>"), ids("<|im_end|>")],
        pad_token_id=ids("<|endoftext|>"),
    )


def save(
    processor: Qwen3ASRProcessor, config: Qwen3ASRConfig, directory: Path, *, seed: int = 0, **options: Any
) -> None:
    """Weights of this seed, with the processor beside them.

    Attention is made sharp and the residual stream weak, else a random model says one token for ever.
    """
    torch.manual_seed(seed)
    module = Qwen3ASRForConditionalGeneration(config)
    with torch.no_grad():
        module.model.language_model.embed_tokens.weight.mul_(0.3)
        for layer in module.model.language_model.layers:
            layer.self_attn.q_norm.weight.fill_(4.0)
    processor.save_pretrained(directory)
    module.save_pretrained(directory, **options)
