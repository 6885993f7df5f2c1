"""Tokens to text and marks, with the tokenizer, through the core's own text stream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from asr_core.longform import join_texts
from asr_core.runtime.stream import ClipText
from asr_core.types import ClipOutput, End, Speaker, Start, Tokens
from asr_moss.decoding import decode_tokens
from asr_moss.frontend import Frontend

from .conftest import ADDED, DIALOGUE, SPECIAL
from .test_grammar import MARK

anything = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def bytewise(frontend: Frontend, text: str) -> Tokens:
    """A token for every byte: each character beyond ASCII is split."""
    ((mapped, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return tuple(frontend.tokenizer.token_to_id(character) for character in mapped)


def run(frontend: Frontend, tokens: Sequence[int]) -> ClipOutput:
    """What the core makes of these output tokens."""

    def decode(tokens: Tokens, state: Any, final: bool, times: tuple[int, ...]) -> Any:
        return decode_tokens(frontend, tokens, state, final)

    text = ClipText(decode, 10_000, lambda _: None)
    text.begin(())
    for token in tokens:
        text.take(token, -0.5)
    return text.close("stop")


def test_marks_come_in_order_within_one_token(frontend: Frontend) -> None:
    tokens = frontend.prompts.encode_plain("[0.50][S01]fox[1.00]")
    piece, _ = decode_tokens(frontend, tokens, None, True)
    assert piece == (Start(500), Speaker("S01"), "fox", End(1000))


def test_a_state_is_a_value(frontend: Frontend) -> None:
    tokens = bytewise(frontend, DIALOGUE[:20])
    first, second = (decode_tokens(frontend, tokens, None, False) for _ in range(2))
    assert first == second
    assert hash(first[1]) == hash(second[1])


@pytest.mark.parametrize("split", [bytewise, lambda frontend, text: frontend.prompts.encode_plain(text)])
def test_split_characters_come_back_whole(frontend: Frontend, split: Any) -> None:
    output = run(frontend, split(frontend, DIALOGUE))
    assert [(one.speaker, one.text) for one in output.segments] == [
        ("S01", "The quick brown fox."),
        ("S02", "Nobody heard <it> & left."),
        ("S01", "看[笑]到了"),
    ]


@pytest.mark.parametrize("name", [*SPECIAL, *ADDED])
def test_added_tokens_have_no_text(frontend: Frontend, name: str) -> None:
    special = frontend.prompts.special[name]
    plain = frontend.prompts.encode_plain("[0.50][S01]the fox[1.00]")
    mixed = [token for pair in plain for token in (special, pair)]
    assert run(frontend, [*mixed, special]).text == run(frontend, plain).text == "the fox"


def test_tokens_beyond_the_tokenizer_have_no_text(frontend: Frontend) -> None:
    """Models have more rows of embeddings than their tokenizer has tokens."""
    size = frontend.tokenizer.get_vocab_size()
    assert run(frontend, [size, size + 2, *frontend.prompts.encode_plain("fox"), size + 1000]).text == "fox"


@anything
@given(data=st.data())
def test_any_tokens(frontend: Frontend, data: st.DataObject) -> None:
    """Whatever a model says: no error, no markup, and all that is surely text is there."""
    marks = [frontend.prompts.encode_plain(mark) for mark in ("[0.50]", "[S01]", "][", "[1:0", " [", "看", "🙂")]
    token = st.integers(0, frontend.tokenizer.get_vocab_size() + 2)
    runs = st.lists(st.one_of(token.map(lambda one: (one,)), st.sampled_from(marks)), max_size=40)
    tokens = [one for run in data.draw(runs) for one in run]
    output = run(frontend, tokens)
    assert not any(name in output.text for name in (*SPECIAL, *ADDED))
    assert not MARK.search(output.text)
    assert join_texts(one.text for one in output.segments) == output.text
    written = frontend.tokenizer.decode(
        [one for one in tokens if one not in frontend.silent], skip_special_tokens=False
    )
    surely = partial(re.sub, r"[^!-~]", "")  # half characters may come out as fewer or more replacements
    assert surely(output.text) == surely(MARK.sub("", written))


@anything
@given(text=st.text())
def test_any_text_by_bytes(frontend: Frontend, text: str) -> None:
    tokens = bytewise(frontend, text) if text else ()
    said = run(frontend, tokens).text
    assert "".join(said.split()) == "".join(MARK.sub("", text).split())
