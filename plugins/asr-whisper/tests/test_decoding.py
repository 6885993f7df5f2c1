"""Tokens to text and times, through the core's own stream and fold, against the tokenizers of others."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_core.runtime.fold import Folded, fold
from asr_core.runtime.text import TokenText
from asr_core.types import End, FrontendModel, Mark, Segment, Start
from asr_whisper import plugin
from asr_whisper.decoding import milliseconds
from asr_whisper.frontend import Frontend

from .test_policy import installed
from .test_tokenizer import openais

OPENAI = openais(True)
BEGIN = OPENAI.timestamp_begin
HELLO, WORLD = OPENAI.encode(" Hello"), OPENAI.encode(" world")

EXAMPLES = settings(max_examples=60, deadline=None)  # the machine may be busy

SCRIPTS = {
    "latin": "abcXYZ éßøñ'-,. 019",
    "cyrillic": "абвЖЩЯ ёї",
    "greek": "αβγΩώ ΐ",
    "arabic": "ابتثجعغ ًٌ،؟",
    "devanagari": "कखगक्षिी ँं।",
    "thai": "กขคำเแ์ ๆ",
    "khmer": "កខគាំ៉ ្",
    "han": "汉字漢語㐀龍𠮷。",
    "kana": "あいうアッパギゃー「」、",
    "amharic": "ሀሁሂአማርኛ ።",
    "emoji": "👋🏽👩\u200d💻🇩🇪❤️ ♪",
    "odd": "\x00\x7f\u200b\u2028\n\t \u0301\U0010ffff",
}
EVERYTHING = "".join(SCRIPTS.values())


def stream(frontend: Frontend, tokens: Iterable[int]) -> TokenText:
    base = installed("whisper-base")
    model = FrontendModel(base.card, base.checkpoint, frontend)
    text = TokenText(lambda tokens, state, *_: plugin.decode_tokens(model, tokens, state))
    for token in tokens:
        text.push(token, -0.5)
    text.close()
    return text


def said(frontend: Frontend, tokens: Iterable[int]) -> str:
    pieces = [item for fragment in stream(frontend, tokens).fragments for item in fragment.piece]
    return "".join(item for item in pieces if isinstance(item, str))


def marks(frontend: Frontend, tokens: Iterable[int]) -> list[Mark]:
    pieces = [item for fragment in stream(frontend, tokens).fragments for item in fragment.piece]
    return [item for item in pieces if not isinstance(item, str)]


def folded(frontend: Frontend, tokens: Iterable[int], duration_ms: int = 30_000) -> Folded:
    return fold(stream(frontend, tokens).fragments, duration_ms)


def at(ms: int) -> int:
    return BEGIN + ms // 20


def bytewise(text: str) -> list[int]:
    return [OPENAI.encoding.encode_single_token(bytes([byte])) for byte in text.encode()]


# Text


@pytest.mark.parametrize("script", SCRIPTS)
def test_text_in_any_script_comes_out_as_it_went_in(frontend: Frontend, script: str) -> None:
    @EXAMPLES
    @given(text=st.text(st.sampled_from(SCRIPTS[script]), max_size=30))
    def check(text: str) -> None:
        tokens = frontend.tokenizer.encode(text, add_special_tokens=False).ids
        assert said(frontend, tokens) == frontend.tokenizer.decode(tokens).lstrip() == text.lstrip()
        assert folded(frontend, tokens).text == text.strip()

    check()


@EXAMPLES
@given(text=st.text(st.sampled_from(EVERYTHING), max_size=12))
def test_characters_cut_into_single_bytes_come_out_whole(frontend: Frontend, text: str) -> None:
    assert said(frontend, bytewise(text)) == text.lstrip()


# Most tokens with Hangul or Hebrew end inside a character that the next one completes.
@EXAMPLES
@given(words=st.lists(st.text(st.sampled_from("한국어룰루뚜렷이흘러אבגדהשלם"), min_size=1, max_size=8), max_size=8))
def test_tokens_may_end_one_character_and_begin_the_next(frontend: Frontend, words: list[str]) -> None:
    text = " ".join(words)
    tokens = frontend.tokenizer.encode(f" {text}", add_special_tokens=False).ids
    assert said(frontend, tokens) == text


@pytest.mark.parametrize("text", ["룰루랄라", "흘러내려", "널브러뜨려", "라라라라라라"])
def test_any_number_of_tokens_may_end_one_character_and_begin_the_next(frontend: Frontend, text: str) -> None:
    assert said(frontend, frontend.tokenizer.encode(f" {text}", add_special_tokens=False).ids) == text


@pytest.mark.parametrize("seed", range(50))
def test_any_tokens_say_what_both_tokenizers_decode(frontend: Frontend, seed: int) -> None:
    tokens = np.random.default_rng(seed).integers(0, OPENAI.eot, 40).tolist()
    text = said(frontend, tokens)
    assert text == frontend.tokenizer.decode(tokens).lstrip()
    assert text == OPENAI.decode(tokens).lstrip()


@pytest.mark.parametrize("text", [" Hello", "   Hello", "\n Hello", "Hello"])
@pytest.mark.parametrize("time", [[], [BEGIN]])
def test_the_first_word_has_no_space_before_it(frontend: Frontend, text: str, time: list[int]) -> None:
    tokens = [*time, *OPENAI.encode(text), *WORLD]
    assert said(frontend, tokens) == "Hello world"
    assert stream(frontend, tokens).fragments[-1].piece == ()


def test_spaces_between_words_and_at_the_end_are_sent(frontend: Frontend) -> None:
    assert said(frontend, OPENAI.encode(" one  two\n three ")) == "one  two\n three "


def test_special_tokens_never_show(frontend: Frontend) -> None:
    specials = range(OPENAI.eot, BEGIN)
    assert len(specials) == 107
    assert said(frontend, specials) == ""
    assert marks(frontend, specials) == []
    assert said(frontend, [token for special in specials for token in (*HELLO, special)]) == "Hello" + " Hello" * 106


def test_a_special_token_inside_a_character_does_not_tear_it(frontend: Frontend) -> None:
    first, second, third = bytewise("語")
    assert said(frontend, [*HELLO, first, OPENAI.no_speech, second, third]) == "Hello語"


@pytest.mark.parametrize("text", ["é", "語", "👋"])
def test_a_character_unfinished_at_the_end_shows_as_one_replacement(frontend: Frontend, text: str) -> None:
    for count in range(1, len(text.encode())):
        assert said(frontend, [*HELLO, *bytewise(text)[:count]]) == "Hello\ufffd"


def test_a_character_unfinished_at_a_timestamp_shows_as_one_replacement(frontend: Frontend) -> None:
    tokens = [at(0), *HELLO, *bytewise("語")[:2], at(1000), at(1000), *WORLD, at(2000)]
    assert folded(frontend, tokens).segments[0].text == "Hello\ufffd"
    assert said(frontend, tokens) == "Hello\ufffd world"


# Times


def test_timestamps_are_20_ms_apart_as_in_openais_package(frontend: Frontend) -> None:
    for token in range(BEGIN, BEGIN + 1501):
        ms = milliseconds(frontend, token)
        assert OPENAI.decode_with_timestamps([token]) == f"<|{ms / 1000:.2f}|>"
    assert milliseconds(frontend, BEGIN + 1500) == 30_000


@EXAMPLES
@given(
    times=st.lists(st.integers(0, 1500), max_size=8),
    text=st.text(st.sampled_from(EVERYTHING), max_size=5),
)
def test_timestamps_open_and_close_segments_in_turn(frontend: Frontend, times: list[int], text: str) -> None:
    tokens = [token for time in times for token in (*bytewise(text), BEGIN + time)]
    expected = [End(20 * time) if number % 2 else Start(20 * time) for number, time in enumerate(times)]
    assert marks(frontend, tokens) == expected


def test_segments_have_the_times_and_tokens_between_their_marks(frontend: Frontend) -> None:
    tokens = [at(0), *HELLO, at(1980), at(2500), *WORLD, at(4000)]
    assert folded(frontend, tokens) == Folded(
        text="Hello world",
        segments=(
            Segment(0, 1980, "Hello", tokens=(at(0), *HELLO, at(1980)), logprobs=(-0.5,) * 3),
            Segment(2500, 4000, "world", tokens=(at(2500), *WORLD, at(4000)), logprobs=(-0.5,) * 3),
        ),
        languages=(),
        marked=((True, True), (True, True)),
    )


def test_a_segment_never_closed_lasts_to_the_end_of_the_clip(frontend: Frontend) -> None:
    segments = folded(frontend, [at(1000), *HELLO], duration_ms=3456).segments
    assert [(segment.start_ms, segment.end_ms) for segment in segments] == [(1000, 3456)]


def test_a_segment_opened_last_and_empty_is_none(frontend: Frontend) -> None:
    segments = folded(frontend, [at(0), *HELLO, at(2000), at(2000)]).segments
    assert [segment.text for segment in segments] == ["Hello"]


def test_times_change_no_text(frontend: Frontend) -> None:
    words = [*HELLO, *WORLD, *HELLO]
    timed = [at(0), *HELLO, at(500), at(500), *WORLD, at(900), at(900), *HELLO, at(1000)]
    assert folded(frontend, timed).text == folded(frontend, words).text == "Hello world Hello"


# Grouping


@EXAMPLES
@given(
    tokens=st.lists(st.sampled_from([*bytewise("é語👋 "), *HELLO, BEGIN + 5, BEGIN + 9, OPENAI.no_speech]), max_size=4)
)
def test_tokens_offered_together_say_what_they_say_one_by_one(frontend: Frontend, tokens: list[int]) -> None:
    base = installed("whisper-base")
    piece, _ = plugin.decode_tokens(FrontendModel(base.card, base.checkpoint, frontend), tuple(tokens), None)
    assert "".join(item for item in piece if isinstance(item, str)) == said(frontend, tokens)
    assert [item for item in piece if not isinstance(item, str)] == marks(frontend, tokens)
