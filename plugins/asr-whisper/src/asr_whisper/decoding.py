"""Tokens to text and times."""

from __future__ import annotations

from attrs import evolve, frozen

from asr_core.types import End, Piece, Start, Tokens
from asr_whisper.frontend import Frontend
from asr_whisper.policy import SECONDS_PER_TIMESTAMP


@frozen
class TextState:
    """Where the output stands: inside a segment that a timestamp opened, and past the first visible character."""

    open: bool = False
    begun: bool = False


def decode_tokens(frontend: Frontend, tokens: Tokens, state: TextState | None) -> tuple[Piece, TextState]:
    """Text of byte-level tokens, timestamps as marks; other special tokens say nothing."""
    state = state or TextState()
    piece: list[str | Start | End] = []
    words: list[int] = []
    for token in tokens:
        if token < frontend.special.eot:
            words.append(token)
        elif token >= frontend.special.timestamp_begin:
            state = _flush(frontend, words, piece, state)
            ms = milliseconds(frontend, token)
            piece.append(End(ms) if state.open else Start(ms))
            state = evolve(state, open=not state.open)
    return _finish(frontend, words, piece, state)


def milliseconds(frontend: Frontend, token: int) -> int:
    """Time a timestamp token stands for, from the clip's start."""
    return round(1000 * SECONDS_PER_TIMESTAMP) * (token - frontend.special.timestamp_begin)


def _finish(
    frontend: Frontend, words: list[int], piece: list[str | Start | End], state: TextState
) -> tuple[Piece, TextState]:
    state = _flush(frontend, words, piece, state)
    return tuple(piece), state


def _flush(frontend: Frontend, words: list[int], piece: list[str | Start | End], state: TextState) -> TextState:
    text = frontend.tokenizer.decode(words, skip_special_tokens=False) if words else ""
    words.clear()
    if not state.begun:
        # Every word brings its space along; the clip's first one has nothing to be parted from.
        text = text.lstrip()
    if text:
        piece.append(text)
    return evolve(state, begun=state.begun or bool(text))
