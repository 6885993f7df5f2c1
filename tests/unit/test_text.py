"""Tokens to text: no character is lost or torn, whatever the tokens are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asr_core.runtime.text import MAX_HELD, TokenText
from asr_core.types import Piece, Tokens


def decode_bytes(tokens: Tokens, state: int | None, final: bool, times: tuple[int, ...]) -> tuple[Piece, int]:
    """Every token is one byte; the state counts them."""
    text = bytes(tokens).decode(errors="replace")
    return ((text,) if text else ()), (state or 0) + len(tokens)


def run(tokens: bytes) -> TokenText:
    text = TokenText(decode_bytes)
    for token in tokens:
        text.push(token, -0.5)
    text.close()
    return text


def said(text: TokenText) -> str:
    return "".join(part for fragment in text.fragments for part in fragment.piece if isinstance(part, str))


@given(st.text())
def test_characters_split_over_tokens_come_out_whole(words: str) -> None:
    text = run(words.encode())
    assert said(text) == words
    assert all("\ufffd" not in part for fragment in text.fragments for part in fragment.piece) or "\ufffd" in words


@given(st.binary())
def test_every_token_is_accounted_for_once_and_in_order(tokens: bytes) -> None:
    text = run(tokens)
    assert [token for fragment in text.fragments for token in fragment.tokens] == list(tokens)
    assert all(len(fragment.tokens) <= MAX_HELD + 1 for fragment in text.fragments)


def test_a_character_that_never_ends_shows_at_the_end() -> None:
    assert said(run(b"ok \xf0\x9f\x99")) == "ok \ufffd"


def test_lone_lead_bytes_are_not_held_for_ever() -> None:
    text = TokenText(decode_bytes)
    for _ in range(300):
        text.push(0xF0, 0.0)
    held = 300 - sum(len(fragment.tokens) for fragment in text.fragments)
    assert held <= MAX_HELD


def test_there_is_one_terminal_call() -> None:
    finals: list[Tokens] = []

    def decode(tokens: Tokens, state: None, final: bool, times: tuple[int, ...]) -> tuple[Piece, None]:
        if final:
            finals.append(tokens)
        return (bytes(tokens).decode(errors="replace"),), None

    text = TokenText(decode)
    for token in b"a\xe4\xbd":
        text.push(token, 0.0)
    text.close()
    assert finals == [(0xE4, 0xBD)]
