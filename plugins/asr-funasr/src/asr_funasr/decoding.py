"""Tokens to text."""

from __future__ import annotations

from asr_core.types import Piece, Tokens
from asr_funasr.frontend import Frontend


def decode_tokens(frontend: Frontend, tokens: Tokens) -> tuple[Piece, None]:
    """The text as the model gives it; tokens that were added to the vocabulary are control and say nothing."""
    control = frozenset(frontend.prompts.special.values())
    words = [token for token in tokens if token not in control]
    text = frontend.tokenizer.decode(words, skip_special_tokens=False) if words else ""
    return ((text,) if text else ()), None
