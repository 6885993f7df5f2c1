"""A Whisper of random weights, small enough to be asked everything alone and without any cache."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from asr_whisper.window import STRIDE

T = TypeVar("T")

VOCABULARY = 97
POSITIONS = 64
WIDTH = 32
FRAMES = 40


def whisper(frames: int = FRAMES, **fields: Any) -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=frames // 2,
        max_target_positions=POSITIONS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=2,
        # Far from even, so that a position or a neighbour too many would be seen.
        init_std=0.3,
        **fields,
    )
    module = WhisperForConditionalGeneration(config).eval().requires_grad_(False)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):  # zero when made, and a bias that is lost would not be seen
            parameter.normal_(std=0.3)
    return module


def encoded(number: int) -> torch.Tensor:
    """Encoder rows, others for every number, of windows in which none, one or two stand for several."""
    rows = FRAMES // 2 - (STRIDE - 1) * (number % 3)
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(number))


def repeated(rows: torch.Tensor, context: int) -> torch.Tensor:
    """As many as a whole window has: those that stand for several as often as they count."""
    whole = len(rows) - (context - len(rows)) // (STRIDE - 1)
    return torch.cat([rows[:whole], rows[whole:].repeat_interleave(STRIDE, 0)])


def logits(module: Any, ids: Sequence[int], rows: torch.Tensor, **fields: Any) -> Any:
    """What transformers says of the whole sequence at once, to rows of a whole window."""
    tokens, heard = torch.tensor([list(ids)]), repeated(rows, module.config.max_source_positions)
    return module(encoder_outputs=(heard[None],), decoder_input_ids=tokens, use_cache=False, **fields)


def whole(parts: Generator[None, None, T]) -> T:
    """What comes of all of them."""
    try:
        while True:
            next(parts)
    except StopIteration as end:
        result: T = end.value
        return result


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """How far apart, as a share of what there is."""
    assert found.shape == expected.shape
    return float((found.float() - expected.float()).norm() / expected.float().norm())
