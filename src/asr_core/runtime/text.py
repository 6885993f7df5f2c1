"""Tokens to text, one at a time: what ends inside a character waits for the next token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import frozen

from asr_core.types import End, Piece, Tokens

MAX_HELD = 4
"""Tokens held back that complete nothing: a UTF-8 character has four bytes, so a fifth token cannot complete it."""

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"

DecodeTokens = Callable[[Tokens, Any, bool, tuple[int, ...]], tuple[Piece, Any]]
"""``decode_tokens`` bound to a model: (tokens, state, final, times) -> (piece, state)."""


@frozen
class Fragment:
    """A piece and the tokens it came from; given tokens have no log-probability."""

    tokens: Tokens
    logprobs: tuple[float, ...]
    piece: Piece


class TokenText:
    """Feeds one clip's output to ``decode_tokens`` and keeps the fragments in order; those committed stay for ever."""

    def __init__(self, decode: DecodeTokens) -> None:
        self._decode = decode
        self._state: Any = None
        self._tokens: Tokens = ()
        self._logprobs: tuple[float, ...] = ()
        self._times: tuple[int, ...] = ()
        self._whole = self._fed = 0
        self._committed = 0
        self._committed_state: Any = None
        self.fragments: list[Fragment] = []

    @property
    def committed(self) -> Tokens:
        """The tokens of what is committed."""
        return tuple(token for fragment in self.fragments[: self._committed] for token in fragment.tokens)

    @property
    def pending(self) -> list[Fragment]:
        """What is not committed; a token that is held back is in no fragment yet."""
        return self.fragments[self._committed :]

    @pending.setter
    def pending(self, fragments: Iterable[Fragment]) -> None:
        self.fragments[self._committed :] = fragments

    @property
    def ends_segment(self) -> bool:
        """Whether the last token ended a segment, and says nothing of what comes behind it."""
        piece = self.fragments[-1].piece if self.fragments and not self.holding else ()
        return bool(piece) and isinstance(piece[-1], End)

    @property
    def holding(self) -> bool:
        """Whether tokens are held back, as the text so far ends inside a character."""
        return bool(self._tokens)

    def push(self, token: int, logprob: float | None = None, time: int | None = None) -> None:
        """Take the next output token; its text may appear only with a later one. A given token has no ``logprob``."""
        self._tokens += (token,)
        self._logprobs += () if logprob is None else (logprob,)
        self._times += () if time is None else (time,)
        piece, state = self._decode(self._tokens, self._state, False, self._times)
        self._grow(piece)
        if not _ends_inside_character(piece) or len(self._tokens) - self._fed > MAX_HELD:
            self._keep(piece, state)

    def _grow(self, piece: Piece) -> None:
        """A token that ends one character may begin the next: the bound counts from the last that ended one."""
        whole = sum(len(item.rstrip(INCOMPLETE)) for item in piece if isinstance(item, str))
        if whole > self._whole:
            self._whole, self._fed = whole, len(self._tokens) - 1

    def close(self) -> None:
        """Make the one terminal call, with whatever is still held back."""
        piece, state = self._decode(self._tokens, self._state, True, self._times)
        self._keep(piece, state)

    def commit(self) -> None:
        """From here on nothing of what was kept can be forgotten."""
        self._committed, self._committed_state = len(self.fragments), self._state

    def rewind(self) -> None:
        """Forget what is not committed, as it is to be decoded again."""
        del self.fragments[self._committed :]
        self._forget_held()
        self._state = self._committed_state

    def _keep(self, piece: Piece, state: Any) -> None:
        self.fragments.append(Fragment(self._tokens, self._logprobs, piece))
        self._forget_held()
        self._state = state

    def _forget_held(self) -> None:
        self._tokens, self._logprobs, self._times = (), (), ()
        self._whole = self._fed = 0


def _ends_inside_character(piece: Piece) -> bool:
    last = piece[-1] if piece else None
    return isinstance(last, str) and last.endswith(INCOMPLETE)
