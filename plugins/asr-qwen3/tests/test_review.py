"""Loops are decoded again, natural repetitions are not."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3ASRProcessor

from asr_core.prompts import PromptTokenizer
from asr_core.types import (
    Accept,
    ClipContext,
    ClipOutput,
    Finish,
    NoSpeech,
    PreparedClip,
    Retry,
    TranscriptionRequest,
    Verdict,
)
from asr_qwen3.decoding import decode_tokens, split_preamble
from asr_qwen3.frontend import MARKER, Frontend, attempts
from asr_qwen3.review import REPEATED, is_loop, review_output

NATURAL = [
    "no no no no no no",
    "no, no, no, no, no, no, no, no!",
    "ha ha ha ha ha ha ha ha ha ha",
    "yes we can, yes we can, yes we can, yes we can",
    "call 0800 0000 0000, that is zero eight hundred and eight zeros",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30",
    "3.14159265358979323846264338327950288419716939937510",
    "row, row, row your boat gently down the stream, merrily, merrily, merrily, merrily, life is but a dream",
    "对对对对对对对对 是的是的是的",
    "a long sentence that comes once, and a long sentence that comes twice, and a long sentence that comes",
]
LOOPS = [
    "no " * 60,
    "thank you for watching. " * 20,
    "嗯" * 60,
    "...." * 20,
    "he was not an " * 12,
    "and so it goes on and on " * 12,
]


@pytest.fixture(scope="module")
def frontend(frontend: Frontend) -> Frontend:
    """With a tokenizer that knows these words, as the published one does: a word or two a token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*NATURAL, *LOOPS, "language English", "language None"], trainer)
    tokenizer.add_special_tokens(["<|im_end|>", MARKER])
    end, marker = map(tokenizer.token_to_id, ("<|im_end|>", MARKER))
    template = evolve(frontend.template, tokenizer=PromptTokenizer(tokenizer))
    return evolve(
        frontend,
        tokenizer=tokenizer,
        template=template,
        marker=(marker,),
        silent=frozenset({end, marker}),
        stop=frozenset({end}),
    )


def review(
    frontend: Frontend,
    text: str,
    *,
    preamble: str | None = "language English",
    request: TranscriptionRequest = TranscriptionRequest(),  # noqa: B008 - an immutable value
    attempt: int = 0,
    committed: int = 0,
    finish: Finish | None = "stop",
) -> Verdict:
    """The verdict on an output of which ``committed`` tokens were sent before."""
    encode = frontend.template.tokenizer.encode_plain
    begin = (*encode(preamble), *frontend.marker) if preamble is not None else ()
    tokens = (*begin, *encode(text))
    given, new = tokens[:committed], tokens[committed:]
    _, state = decode_tokens(frontend, given, None, False)
    piece, _ = decode_tokens(frontend, new, state if given else None, True)
    said = "".join(item for item in piece if isinstance(item, str)).strip()
    prepared = PreparedClip(spans=(), stop=frontend.stop, budget=1)
    stop = (min(frontend.stop),) if finish == "stop" else ()
    output = ClipOutput((*new, *stop), (-0.1,) * len((*new, *stop)), given, said, (), (), finish)
    return review_output(frontend, output, prepared, request, ClipContext(attempt=attempt))


@pytest.mark.parametrize("text", NATURAL)
def test_natural_repetition_stands(frontend: Frontend, text: str) -> None:
    assert review(frontend, text) == Accept()
    assert review(frontend, text, finish=None) == Accept()


@pytest.mark.parametrize("text", LOOPS)
def test_a_loop_is_tried_again(frontend: Frontend, text: str) -> None:
    assert isinstance(review(frontend, text), Retry)
    assert isinstance(review(frontend, f"He said: {text}", finish=None), Retry)


def test_a_loop_shows_in_the_first_run_of_one_word(frontend: Frontend) -> None:
    (word,) = set(frontend.template.tokenizer.encode_plain("!"))
    tokens = (*frontend.template.tokenizer.encode_plain("language English"), *frontend.marker)
    run = (*tokens, *(word,) * (32 - len(tokens)))
    assert is_loop(split_preamble(frontend, run)[1], new=32)


def test_a_loop_shows_across_commits(frontend: Frontend) -> None:
    """Each run alone has too little of a long pattern."""
    text = "and so it goes on and on " * 12
    assert isinstance(review(frontend, text, committed=64, finish=None), Retry)
    whole = frontend.template.tokenizer.encode_plain(text)
    assert not is_loop(whole[:32], new=32)


def test_what_was_sent_is_not_held_against_what_follows(frontend: Frontend) -> None:
    sent = len(frontend.template.tokenizer.encode_plain("no " * 60)) - 1  # its last space joins the next word
    assert review(frontend, "no " * 60 + "he went home", preamble=None, committed=sent, finish=None) == Accept()


@given(
    pattern=st.lists(st.integers(0, 99), min_size=1, max_size=16, unique=True),
    before=st.lists(st.integers(100, 199), max_size=40, unique=True),
    behind=st.lists(st.integers(200, 299), max_size=9, unique=True),
    repeats=st.integers(1, 60),
)
def test_eight_times_and_28_tokens_are_a_loop(
    pattern: list[int], before: list[int], behind: list[int], repeats: int
) -> None:
    tokens = (*before, *pattern * repeats, *behind)
    assert is_loop(tokens, new=10) == (repeats >= 8 and len(pattern) * repeats >= 28)
    assert not is_loop(tokens, new=len(behind))


@settings(max_examples=300, deadline=None)
@example(before="", pattern="0", repeats=20, behind="")
@example(before="", pattern="0", repeats=21, behind="")
@example(before="", pattern="0", repeats=20, behind="." * 19)
@example(before="", pattern="0", repeats=20, behind="!?" * 10)
@given(
    before=st.text("ab.", max_size=9),
    pattern=st.text("ab.嗯", min_size=1, max_size=22),
    repeats=st.integers(17, 23),
    behind=st.text("ab.", max_size=45),
)
def test_text_repeats_itself_where_the_official_rule_cuts(
    processor: Qwen3ASRProcessor, before: str, pattern: str, repeats: int, behind: str
) -> None:
    text = before + pattern * repeats + behind
    assert bool(REPEATED.search(text)) == (processor.extract_transcription(text) != text)


# Attempts


def test_the_prompt_goes_first_then_it_gets_warmer() -> None:
    prompted = attempts(TranscriptionRequest(prompt="Norland"))
    assert [(one.prompted, one.temperature) for one in prompted[:4]] == [
        (True, 0.0),
        (False, 0.0),
        (False, 0.2),
        (False, 0.4),
    ]
    bare = attempts(TranscriptionRequest())
    assert [one.temperature for one in bare[:3]] == [0.0, 0.2, 0.4]
    assert len({one.temperature for one in bare}) == len(bare)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_temperature_that_was_chosen_stays(temperature: float) -> None:
    request = TranscriptionRequest(prompt="Norland", temperature=temperature)
    assert [(one.prompted, one.temperature) for one in attempts(request)] == [
        (True, temperature),
        (False, temperature),
    ]
    assert len(attempts(TranscriptionRequest(temperature=temperature, prompt=" "))) == 1


def test_the_last_attempt_stands(frontend: Frontend) -> None:
    last = len(attempts(TranscriptionRequest())) - 1
    assert isinstance(review(frontend, LOOPS[0], attempt=last - 1), Retry)
    assert review(frontend, LOOPS[0], attempt=last) == Accept()
    chosen = TranscriptionRequest(temperature=0.0)
    assert review(frontend, LOOPS[0], request=chosen) == Accept()


# Nobody


def test_nobody_spoke(frontend: Frontend) -> None:
    assert review(frontend, "", preamble="language None") == NoSpeech()
    assert review(frontend, " ", preamble="language None") == NoSpeech()


@pytest.mark.parametrize("preamble", ["language English", "", None])
def test_an_empty_answer_in_a_language_stands(frontend: Frontend, preamble: str | None) -> None:
    assert review(frontend, "", preamble=preamble) == Accept()


def test_words_in_no_language_stand(frontend: Frontend) -> None:
    assert review(frontend, "hm", preamble="language None") == Accept()
    assert review(frontend, "", preamble="language None", finish=None) == Accept()
