"""Verdicts on outputs made by hand, with OpenAI's thresholds."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import whisper
from attrs import evolve
from whisper.utils import compression_ratio as openai_compression_ratio

from asr_core.types import (
    Accept,
    Ask,
    ClipContext,
    ClipOutput,
    FrontendModel,
    NoSpeech,
    Probe,
    Retry,
    TranscriptionRequest,
    Verdict,
    Waveform,
)
from asr_whisper import plugin, review
from asr_whisper.frontend import BEGIN, Frontend

from .test_policy import installed
from .test_tokenizer import openais

OPENAI = openais(True)
HELLO = tuple(OPENAI.encode(" Hello there"))
LOOP = "Thank you. " * 20
SECONDS = 10
LAST = 5
UNTIMED = TranscriptionRequest(language="en")
TIMED = TranscriptionRequest(language="en", times=frozenset({"segment"}))


def at(seconds: float) -> int:
    return int(OPENAI.timestamp_begin + round(seconds * 50))


def context(no_speech: float = 0.01, attempt: int = 0) -> ClipContext:
    return ClipContext(attempt, probe_results={BEGIN: (math.log(no_speech),)})


def accepted(consumed_to: int | None = None, no_speech: float = 0.01) -> Accept:
    """With what the probe said of nobody speaking."""
    return Accept(consumed_to, pytest.approx(no_speech))  # type: ignore[arg-type]


def output(tokens: tuple[int, ...] = HELLO, *, text: str = "Hello there", logprob: float = -0.2) -> ClipOutput:
    tokens = (*tokens, OPENAI.eot)
    return ClipOutput(tokens, (logprob,) * len(tokens), (), text, (), (), "stop")


def verdict(
    frontend: Frontend, said: ClipOutput, context: ClipContext, request: TranscriptionRequest = TIMED
) -> Verdict:
    base = installed("whisper-base")
    model = FrontendModel(base.card, base.checkpoint, frontend)
    # A clip from the middle of the audio: what was consumed counts from the clip's start.
    clip = Waveform(np.ones(20 * 16_000, np.float32), 16_000, b"").clip(5 * 16_000, (5 + SECONDS) * 16_000)
    prepared = plugin.prepare_clip(model, clip, request, context)
    return plugin.review_output(model, said, prepared, request, context)


# Good enough?


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("logprob_threshold", review.MIN_MEAN_LOGPROB),
        ("compression_ratio_threshold", review.MAX_COMPRESSION_RATIO),
        ("no_speech_threshold", review.MAX_NO_SPEECH),
    ],
)
def test_thresholds_are_openais(option: str, value: float) -> None:
    assert inspect.signature(whisper.transcribe).parameters[option].default == value


@pytest.mark.parametrize("attempt", range(LAST + 1))
def test_a_good_output_stands(frontend: Frontend, attempt: int) -> None:
    assert verdict(frontend, output(), context(attempt=attempt)) == accepted()


@pytest.mark.parametrize("attempt", range(LAST + 1))
def test_unsure_and_no_speech_is_silence(frontend: Frontend, attempt: int) -> None:
    assert verdict(frontend, output(logprob=-1.01), context(0.61, attempt)) == NoSpeech()


@pytest.mark.parametrize(("logprob", "request_"), [(-1.01, UNTIMED), (-0.2, TIMED)], ids=["unsure", "told in segments"])
def test_whether_anybody_speaks_is_asked_where_it_matters(
    frontend: Frontend, logprob: float, request_: TranscriptionRequest
) -> None:
    asked = Probe(BEGIN, ((OPENAI.sot,),), (OPENAI.no_speech,))
    assert verdict(frontend, output(logprob=logprob), ClipContext(), request_) == Ask((asked,))
    assert verdict(frontend, output(), ClipContext(), UNTIMED) == Accept()


def test_a_loop_over_silence_is_silence_too(frontend: Frontend) -> None:
    assert verdict(frontend, output(text=LOOP, logprob=-1.01), context(0.61)) == NoSpeech()


def test_sure_words_are_believed_where_no_speech_was_expected(frontend: Frontend) -> None:
    assert verdict(frontend, output(logprob=-0.99), context(0.99)) == accepted(no_speech=0.99)


def test_without_a_word_and_sure_of_it_the_output_stands(frontend: Frontend) -> None:
    assert verdict(frontend, output((), text=""), context(0.99)) == accepted(no_speech=0.99)


@pytest.mark.parametrize("attempt", range(LAST))
def test_unsure_speech_is_decoded_again(frontend: Frontend, attempt: int) -> None:
    assert verdict(frontend, output(logprob=-1.26), context(0.59, attempt)) == Retry(
        "unsure (mean log-probability -1.26)"
    )


@pytest.mark.parametrize("attempt", range(LAST))
def test_repetition_is_decoded_again(frontend: Frontend, attempt: int) -> None:
    found = verdict(frontend, output(text=LOOP), context(attempt=attempt))
    assert found == Retry(f"repeats itself (compression ratio {openai_compression_ratio(LOOP):.1f})")


def test_the_stop_token_counts_towards_the_mean(frontend: Frontend) -> None:
    words = evolve(output(), logprobs=(-1.2,) * len(HELLO) + (-0.1,))
    assert verdict(frontend, words, context()) == accepted()
    assert isinstance(verdict(frontend, evolve(words, logprobs=(-1.2,) * len(HELLO) + (-1.0,)), context()), Retry)


@pytest.mark.parametrize("said", [output(logprob=-3.0), output(text=LOOP)], ids=["unsure", "repetition"])
def test_at_the_end_of_the_ladder_anything_stands(frontend: Frontend, said: ClipOutput) -> None:
    assert verdict(frontend, said, context(attempt=LAST)) == accepted()


@pytest.mark.parametrize("said", [output(logprob=-3.0), output(text=LOOP)], ids=["unsure", "repetition"])
def test_with_a_temperature_of_the_callers_nothing_is_decoded_again(frontend: Frontend, said: ClipOutput) -> None:
    assert verdict(frontend, said, context(), evolve(TIMED, temperature=0.4)) == accepted()


def test_with_a_temperature_of_the_callers_silence_is_silence(frontend: Frontend) -> None:
    said = output(logprob=-1.01)
    assert verdict(frontend, said, context(0.61), evolve(TIMED, temperature=0.4)) == NoSpeech()


@pytest.mark.parametrize("temperature", [None, 0.0])
def test_zero_is_no_temperature_of_the_callers(frontend: Frontend, temperature: float | None) -> None:
    request = evolve(TIMED, temperature=temperature)
    assert isinstance(verdict(frontend, output(logprob=-3.0), context(), request), Retry)


@pytest.mark.parametrize("text", ["a", "Hello there", LOOP, "안녕하세요 " * 9, "👋", "\n", "x" * 10_000])
def test_the_compression_ratio_is_openais(text: str) -> None:
    assert review.compression_ratio(text) == openai_compression_ratio(text)


def test_nothing_does_not_repeat_itself() -> None:
    assert review.compression_ratio("") == 0


# How far did the model listen?


def consumed(frontend: Frontend, *tokens: int) -> int | None:
    found = verdict(frontend, output(tokens), context())
    assert isinstance(found, Accept)
    return found.consumed_to


def test_a_segment_opened_and_not_filled_is_still_to_be_heard(frontend: Frontend) -> None:
    assert consumed(frontend, at(0), *HELLO, at(5.2), at(5.2)) == 83_200


def test_what_lies_between_a_segment_and_the_next_is_heard_again(frontend: Frontend) -> None:
    # OpenAI's transcribe and transformers' generate resume where the last whole segment ended, too.
    assert consumed(frontend, at(0), *HELLO, at(5.2), at(6)) == 83_200


def test_only_the_last_pair_counts(frontend: Frontend) -> None:
    tokens = (at(0), *HELLO, at(2), at(2), *HELLO, at(4), at(4))
    assert consumed(frontend, *tokens) == 64_000
    assert consumed(frontend, *tokens, *HELLO, at(7)) is None


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param((), id="nothing"),
        pytest.param(HELLO, id="no timestamps"),
        pytest.param((at(0),), id="one timestamp"),
        pytest.param((at(0), *HELLO, at(5.2)), id="a single timestamp at the end"),
        pytest.param((at(0), *HELLO, at(5.2), at(5.2), *HELLO), id="words at the end"),
        pytest.param((at(0), *HELLO, at(SECONDS), at(SECONDS)), id="the clip's end"),
        pytest.param((at(0), *HELLO, at(SECONDS + 0.02), at(SECONDS + 0.02)), id="beyond the clip"),
        pytest.param((at(0), at(0)), id="nothing consumed"),
    ],
)
def test_all_of_the_clip_was_heard(frontend: Frontend, tokens: tuple[int, ...]) -> None:
    assert consumed(frontend, *tokens) is None


def test_half_a_second_is_heard_again_and_less_is_too_short_to_be_heard_alone(frontend: Frontend) -> None:
    assert consumed(frontend, at(0), *HELLO, at(SECONDS - 0.5), at(SECONDS - 0.5)) == SECONDS * 16_000 - 8_000
    assert consumed(frontend, at(0), *HELLO, at(SECONDS - 0.48), at(SECONDS - 0.48)) is None


def test_the_pair_counts_where_the_budget_ran_out_too(frontend: Frontend) -> None:
    tokens = (at(0), *HELLO, at(5.2), at(5.2))
    cut = ClipOutput(tokens, (-0.2,) * len(tokens), (), "Hello there", (), (), "length")
    assert verdict(frontend, cut, context()) == accepted(83_200)
