"""Callers' words in templates, against the tokenizer's own encoding; placeholders against the spans they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asr_core.errors import PluginError
from asr_core.prompts import PromptTokenizer, split_placeholders
from asr_core.testing.tokenizer import train_tokenizer
from asr_core.types import AudioSlice, AudioSpan

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|audio|>", "<|audio|>x")
ADDED = ("<tag>",)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(SPECIAL, ADDED)


@pytest.fixture(scope="module")
def prompts(tokenizer: Any) -> PromptTokenizer:
    return PromptTokenizer(tokenizer)


harmless = st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=30)


@given(said=harmless, more=harmless)
def test_ids_are_those_of_the_whole_text(tokenizer: Any, prompts: PromptTokenizer, said: str, more: str) -> None:
    template = "<|im_start|>user\nwords: [{}, {}] <|audio|><tag>{}<|im_end|>"
    rendered = template.format("\ue000", "\ue001", "\ue000")
    callers = {"\ue000": said, "\ue001": more}
    assert prompts.encode(rendered, callers) == tuple(tokenizer.encode(template.format(said, more, said)).ids)


@given(
    text=st.lists(
        st.sampled_from([*SPECIAL, *ADDED, "<|", "audio", "|>", " ", "a"]) | st.text(max_size=3), max_size=8
    ).map("".join)
)
def test_a_callers_text_is_never_a_special_token(tokenizer: Any, prompts: PromptTokenizer, text: str) -> None:
    text = text.encode(errors="ignore").decode()
    ids = prompts.encode("<|im_start|>?<|im_end|>", {"?": text})
    assert not {*ids[1:-1]} & {*prompts.special.values()}
    assert tokenizer.decode(ids[1:-1]) == tokenizer.normalizer.normalize_str(text)


def test_text_joins_before_it_is_cut(tokenizer: Any, prompts: PromptTokenizer) -> None:
    assert prompts.encode("th?", {"?": "e"}) == tuple(tokenizer.encode("the").ids)
    assert prompts.encode("<|im_?|>", {"?": "start"}) == prompts.encode_plain("<|im_start|>")


def test_the_longest_special_token_is_taken(tokenizer: Any, prompts: PromptTokenizer) -> None:
    assert prompts.encode("<|audio|>x") == (tokenizer.token_to_id("<|audio|>x"),)


def test_placeholders_in_runs_and_over_spans() -> None:
    spans = (AudioSpan(0, 1, tokens=3), AudioSpan(1, 2, tokens=2))
    assert split_placeholders([7, 0, 0, 8, 0, 0, 0, 9], 0, spans) == (
        (7,),
        AudioSlice(0, 0, 2),
        (8,),
        AudioSlice(0, 2, 1),
        AudioSlice(1, 0, 2),
        (9,),
    )


@given(rows=st.lists(st.integers(0, 4), max_size=4), seed=st.randoms())
def test_every_row_stands_once_and_in_order(rows: list[int], seed: Any) -> None:
    ids = [0] * sum(rows)
    for _ in range(3):
        ids.insert(seed.randint(0, len(ids)), 5)
    spans = [AudioSpan(number, number + 1, tokens=count) for number, count in enumerate(rows)]
    parts = split_placeholders(ids, 0, spans)
    slices = [part for part in parts if isinstance(part, AudioSlice)]
    assert [(part.span, part.first + row) for part in slices for row in range(part.count)] == [
        (number, row) for number, count in enumerate(rows) for row in range(count)
    ]
    assert [token for part in parts if not isinstance(part, AudioSlice) for token in part] == [5, 5, 5]


@pytest.mark.parametrize("ids", [[0], [0, 0, 0], []])
def test_other_counts_are_the_plugins_fault(ids: list[int]) -> None:
    with pytest.raises(PluginError, match=f"{len(ids)} placeholders for 2 rows"):
        split_placeholders(ids, 0, [AudioSpan(0, 1, tokens=2)])
