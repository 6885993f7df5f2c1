"""Tokens to text and marks."""

from __future__ import annotations

from asr_core.types import Piece, Tokens
from asr_moss.frontend import Frontend
from asr_moss.grammar import Output


def decode_tokens(frontend: Frontend, tokens: Tokens, output: Output | None, final: bool) -> tuple[Piece, Output]:
    """Text of byte-level tokens read as segments; tokens that were added to the vocabulary say nothing."""
    words = [token for token in tokens if token not in frontend.silent]
    text = frontend.tokenizer.decode(words, skip_special_tokens=False) if words else ""
    return (output or Output()).read(text, final=final)
