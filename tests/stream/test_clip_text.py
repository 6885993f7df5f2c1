"""One clip's output over its attempts: what is committed stays, what is not leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest

from asr_core.runtime.stream import ClipText
from asr_core.types import End, Piece, Segment, Start, Tokens

ENDS = 1000
"""Tokens from here on end a segment, so many milliseconds later."""


def numbered(tokens: Tokens, state: int | None, final: bool, times: tuple[int, ...]) -> tuple[Piece, int]:
    """Every character with how many tokens came before it in the clip."""
    count = state or 0
    if tokens and tokens[0] >= ENDS:
        return (End(tokens[0] - ENDS),), count + 1
    text = bytes(tokens).decode(errors="replace")
    return ((f"{count}{text}",) if text else ()), count + len(tokens)


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def text(sent: list[str]) -> ClipText:
    return ClipText(numbered, duration_ms=1000, send=sent.append)


def take(text: ClipText, *tokens: int) -> None:
    for token in tokens:
        text.take(token, -0.5)


def test_a_retry_goes_on_from_the_state_at_the_commit(text: ClipText, sent: list[str]) -> None:
    text.begin(())
    take(text, *b"ab", ENDS + 100)
    text.commit()
    take(text, *b"wrong", 0xE4)  # the last is held back, as it begins a character
    text.begin(text.committed)
    take(text, *b"c")
    output = text.close("stop")
    text.commit()
    assert sent == ["0a1b", "3c"]
    assert (output.given, output.tokens, output.text) == ((*b"ab", ENDS + 100), tuple(b"c"), "3c")
    assert text.folded().text == "0a1b3c"


def test_review_sees_times_that_follow_what_is_committed(text: ClipText) -> None:
    text.begin(())
    take(text, *b"a", ENDS + 100)
    text.commit()
    take(text, *b"b", ENDS + 300)
    assert [(one.start_ms, one.end_ms) for one in text.output().segments] == [(100, 300)]
    assert text.output().finish is None


def test_given_tokens_have_text_until_they_are_committed(text: ClipText, sent: list[str]) -> None:
    text.begin(tuple(b"a"))
    take(text, *b"b")
    output: Any = text.output()
    assert (output.given, output.tokens, output.text) == (tuple(b"a"), tuple(b"b"), "0a1b")
    assert output.logprobs == (-0.5,)
    text.commit()
    assert (text.committed, sent) == (tuple(b"ab"), ["0a1b"])


def test_a_token_held_back_ends_no_segment(text: ClipText) -> None:
    text.begin(())
    take(text, *b"a", ENDS + 100)
    assert text.ends_segment
    take(text, 0xE4)
    assert not text.ends_segment


def test_what_is_dropped_is_not_sent(text: ClipText, sent: list[str]) -> None:
    text.begin(())
    take(text, *b"a")
    text.close("stop")
    text.drop()
    text.commit()
    assert (sent, text.folded().text) == ([], "")


@pytest.mark.parametrize("behind", [("b",), (Start(300),)], ids=["text", "start"])
def test_a_token_that_goes_on_behind_an_end_ends_no_segment(behind: Piece) -> None:
    """What is told of a segment is what the whole will say: nobody knows yet when this one ends, or that it began."""
    pieces: dict[int, Piece] = {1: ("a",), 2: (End(200), *behind), 3: ("c",), 4: (End(500),)}
    told: list[Segment] = []
    text = ClipText(lambda tokens, *_: (tuple(item for token in tokens for item in pieces[token]), None), 1000, print)
    text.tell = told.extend
    text.begin(())
    for token in pieces:
        take(text, token)
        if text.ends_segment:
            text.commit(by_segment=True)
    assert tuple(told) == text.folded().segments
