"""Tokens to text: nothing is lost, and no markup gets through."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers import Qwen3ASRProcessor
from transformers.models.qwen3_asr.processing_qwen3_asr import LANGUAGE_CODE_TO_NAME

from asr_core.api import Transcriber
from asr_core.runtime.fold import fold
from asr_core.runtime.text import TokenText
from asr_core.types import Language, Piece, Tokens
from asr_qwen3.decoding import decode_tokens
from asr_qwen3.frontend import MARKER, Frontend

WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
PROPERTY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["one token", "several tokens"])
def frontend(request: pytest.FixtureRequest, frontend: Frontend) -> Frontend:
    """The marker as its own token, and as a tokenizer without it writes it."""
    if request.param == "one token":
        assert len(frontend.marker) == 1
        return frontend
    marker = frontend.template.tokenizer.encode_plain(MARKER)
    assert len(marker) > 1
    return evolve(frontend, marker=marker)


def encode(frontend: Frontend, text: str) -> Tokens:
    return frontend.template.tokenizer.encode_plain(text)


def pieces(frontend: Frontend, tokens: Sequence[int]) -> list[Piece]:
    """What the core makes of the tokens, one by one, with its hold-back."""
    text = TokenText(lambda *call: decode_tokens(frontend, *call[:3]))
    for token in tokens:
        text.push(token, -0.5)
    text.close()
    assert fold(text.fragments, 1000).text == "".join(strings(text)).strip()
    return [fragment.piece for fragment in text.fragments]


def strings(text: TokenText) -> list[str]:
    return [item for fragment in text.fragments for item in fragment.piece if isinstance(item, str)]


def decoded(frontend: Frontend, tokens: Sequence[int]) -> tuple[str, list[str]]:
    """Text and languages."""
    items = [item for piece in pieces(frontend, tokens) for item in piece]
    text = "".join(item for item in items if isinstance(item, str))
    return text, [item.code for item in items if isinstance(item, Language)]


@pytest.mark.parametrize(("code", "name"), LANGUAGE_CODE_TO_NAME.items())
def test_the_preamble_names_the_language_and_is_no_text(frontend: Frontend, code: str, name: str) -> None:
    tokens = (*encode(frontend, f"language {name}"), *frontend.marker, *encode(frontend, "Grüße, 你好"))
    assert decoded(frontend, tokens) == ("Grüße, 你好", [code])


@pytest.mark.parametrize(
    "preamble", ["language None", "language Klingon", "language", "language ", "", " language Old Norse\n"]
)
def test_a_name_that_is_no_language_is_no_text_either(frontend: Frontend, preamble: str) -> None:
    tokens = (*encode(frontend, preamble), *frontend.marker, *encode(frontend, "word"))
    assert decoded(frontend, tokens) == ("word", [])


@pytest.mark.parametrize(
    "text",
    [
        "language is what people speak",
        "language",
        "lang",
        "language English",
        "language lessons, he said",
        "he speaks the language",
        "language " + "x" * 100,
        "语音转写",
        "",
    ],
)
def test_without_the_marker_everything_is_text(frontend: Frontend, text: str) -> None:
    assert decoded(frontend, encode(frontend, text)) == (text, [])


def test_words_that_cannot_be_a_preamble_are_not_held_back(frontend: Frontend) -> None:
    token, *_ = encode(frontend, "he")
    piece, state = decode_tokens(frontend, (token,), None, False)
    assert "".join(map(str, piece)) == frontend.tokenizer.decode([token])
    assert state.waiting is None


def test_a_marker_amid_the_text_is_dropped(model: Transcriber) -> None:
    """Where it is a token; to a tokenizer that splits it, it is words like any other."""
    frontend = model.served.model.frontend
    tokens = (*encode(frontend, "so he said"), *frontend.marker, *encode(frontend, " no"))
    assert decoded(frontend, tokens) == ("so he said no", [])


def test_tokens_without_text_are_not_waited_upon_for_ever(frontend: Frontend) -> None:
    silent = [frontend.template.tokenizer.special["<tool_call>"]] * 40
    *_, last = pieces(frontend, [*silent, *encode(frontend, "l")])[:-1]
    assert last == ("l",)


@PROPERTY
@example(words=["é🙂", "语"], preamble=False)
@given(words=st.lists(WORDS, max_size=6), preamble=st.booleans())
def test_no_word_is_lost_and_no_special_token_shows(frontend: Frontend, words: list[str], preamble: bool) -> None:
    """Special tokens and ids nobody has a text for, between words of all scripts."""
    silent = [*sorted(frontend.silent - set(frontend.marker)), 100_000]
    tokens = [*encode(frontend, "language English"), *frontend.marker] if preamble else []
    for number, word in enumerate(words):
        tokens += [*encode(frontend, word), silent[number % len(silent)]]
    expected = "".join(unicodedata.normalize("NFC", word) for word in words)
    if not preamble and MARKER in expected:
        return
    assert decoded(frontend, tokens)[0] == expected


@PROPERTY
@given(data=st.data())
def test_any_tokens_have_an_answer(frontend: Frontend, data: st.DataObject) -> None:
    special = frontend.template.tokenizer.special
    ids = st.integers(0, max(special.values()) + 4) | st.sampled_from(sorted(special.values()))
    tokens = data.draw(st.lists(ids, max_size=60))
    text, languages = decoded(frontend, tokens)
    assert len(languages) <= 1
    typed = frontend.tokenizer.decode([token for token in tokens if token not in frontend.silent])
    assert all(name not in text or name in typed for name in special)
    if not set(frontend.marker) & set(tokens):
        # What is inside a character is given up after a few tokens, and may then show differently.
        assert text.replace("\ufffd", "") == typed.replace("\ufffd", "") or "\ufffd" in text


@PROPERTY
@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=20))  # more might repeat itself, and be cut
def test_transcriptions_are_those_of_the_processor(frontend: Frontend, processor: Qwen3ASRProcessor, text: str) -> None:
    tokens = (*encode(frontend, "language German"), *frontend.marker, *encode(frontend, text))
    said = f"language German{MARKER}{unicodedata.normalize('NFC', text)}"
    assert decoded(frontend, tokens)[0].strip() == processor.extract_transcription(said)
