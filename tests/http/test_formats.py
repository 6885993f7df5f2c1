"""The values in an answer, against what is known of the sound it is about."""

from __future__ import annotations

import math
import zlib
from typing import Any

import pytest
from openai.types.audio import TranscriptionVerbose

from asr_core.serve.bodies import LEAST_LOGPROB, View, json_body, verbose_body
from asr_core.serve.formats import FORMATS
from asr_core.testing.http_contract import body_of, error_of, events_of
from asr_core.testing.server import Server
from asr_core.types import Guard, Segment, SpokenToken, Stretch, Transcript, Word

VERBOSE = ("response_format", "verbose_json")


def test_a_verbose_answer(server: Server, wav: Any) -> None:
    parts = [("model", "fake"), ("behaviour", "speakers"), VERBOSE, ("file", wav("ab/cd"))]
    body = body_of(server.post(*parts))
    assert TranscriptionVerbose.model_validate(body, strict=True).text == body["text"] == "ab cd"
    assert (body["task"], body["language"], body["duration"]) == ("transcribe", "unknown", pytest.approx(0.43))
    assert body["usage"] == {"type": "duration", "seconds": 1}
    first, second = body["segments"]
    # 30 ms of silence, then 50 ms of tone and 30 ms of silence a byte; the tokens are bytes and frames of 10 ms.
    assert first == {
        "id": 0,
        "seek": 0,
        "start": 0.03,
        "end": 0.16,
        "text": "ab",
        "tokens": [270, 303, 97, 98, 316],
        "temperature": 0.0,
        "avg_logprob": pytest.approx(0, abs=1e-6),
        "compression_ratio": pytest.approx(2 / len(zlib.compress(b"ab"))),
        "no_speech_prob": pytest.approx(first["no_speech_prob"]),
    }
    assert (second["id"], second["start"], second["end"], second["text"]) == (1, 0.27, 0.4, "cd")


def test_a_model_without_segments_shows_its_clip_as_one(server: Server, wav: Any) -> None:
    body = body_of(server.post(("model", "fake"), VERBOSE, ("file", wav("ab cd"))))
    (segment,) = body["segments"]
    assert (segment["start"], segment["end"], segment["text"]) == (0.0, body["duration"], "ab cd")


def test_words(server: Server, wav: Any) -> None:
    parts = [("model", "able"), VERBOSE, ("timestamp_granularities[]", "word"), ("file", wav("grüße an"))]
    body = body_of(server.post(*parts))
    assert body["words"] == [
        {"word": "grüße", "start": 0.03, "end": 0.56},
        {"word": "an", "start": 0.67, "end": 0.8},
    ]
    assert "segments" not in body


@pytest.mark.parametrize("parts", [[], [("stream", "true")]])
def test_log_probabilities_are_of_whole_characters(server: Server, wav: Any, parts: list[tuple[str, str]]) -> None:
    answer = server.post(("model", "fake"), ("include[]", "logprobs"), *parts, ("file", wav("aß好")))
    tokens = (events_of(answer)[-1] if parts else body_of(answer))["logprobs"]
    assert [(token["token"], token["bytes"]) for token in tokens] == [
        ("a", [97]),
        ("ß", [195, 159]),
        ("好", [229, 165, 189]),
    ]
    assert all(token["logprob"] == pytest.approx(0, abs=1e-6) for token in tokens)


def test_log_probabilities_come_only_when_asked_for(server: Server, wav: Any) -> None:
    assert "logprobs" not in body_of(server.post(("model", "fake"), ("file", wav("x"))))
    assert "logprobs" not in events_of(server.post(("model", "fake"), ("stream", "true"), ("file", wav("x"))))[-1]


def test_who_speaks_by_events(server: Server, wav: Any) -> None:
    asked = [("model", "fake"), ("behaviour", "speakers"), ("response_format", "diarized_json")]
    whole = body_of(server.post(*asked, ("file", wav("ab/cd/ef"))))
    events = events_of(server.post(*asked, ("stream", "true"), ("file", wav("ab/cd/ef"))))
    segments = [event for event in events if event["type"] == "transcript.text.segment"]
    assert segments == whole["segments"]
    assert [segment["id"] for segment in segments] == ["seg_001", "seg_002", "seg_003"]
    deltas = [event["delta"] for event in events if event["type"] == "transcript.text.delta"]
    assert (events[-1]["type"], "".join(deltas)) == ("transcript.text.done", "ab cd ef")
    assert events[-1]["text"] == "ab cd ef"
    assert whole["text"] == "A: ab\nB: cd\nA: ef"


@pytest.mark.parametrize("name", ["text", "srt", "vtt"])
def test_text_has_its_coverage_in_a_header(server: Server, wav: Any, name: str) -> None:
    answer = server.post(("model", "fake"), ("response_format", name), ("file", wav("ab")))
    # Two bytes in tones: 30 ms of silence, then 50 ms of tone and 30 ms of silence each.
    assert answer.headers["x-asr-coverage"] == "decoded=0.190, redecoded=0.000, silent=0.000, lost=0.000, guards=0"
    file = wav("x" * 9)
    answer = server.post(("model", "fake"), ("response_format", name), ("file", file[:44] + bytes(len(file) - 44)))
    assert answer.headers["x-asr-coverage"] == "decoded=0.000, redecoded=0.000, silent=0.750, lost=0.000, guards=0"


def test_a_guard_shows_in_every_format(server: Server, wav: Any) -> None:
    asked = [("model", "fake"), ("behaviour", "loop"), ("file", wav("ha"))]
    body = body_of(server.post(VERBOSE, *asked))
    (guard,) = body["x_asr"]["guards"]
    # The fake may say 16 tokens more than its sound has frames of 10 ms; these repeats are too few to be a loop.
    assert guard == {"kind": "budget", "start": 0.0, "end": 0.19, "note": "cut at the budget of 35 tokens"}
    assert body["segments"][0]["compression_ratio"] > 1
    assert server.post(("response_format", "text"), *asked).headers["x-asr-coverage"].endswith("guards=1")


@pytest.mark.parametrize("name", ["srt", "vtt"])
def test_a_model_without_times_has_no_subtitles(server: Server, wav: Any, name: str) -> None:
    assert error_of(server.post(("model", "echo"), ("response_format", name), ("file", wav("x"))), 400)


LONG = Transcript(
    text="one two",
    language="yue",
    duration=7200.001,
    segments=(
        Segment(0, 30_000, "one", tokens=(1, 2), logprobs=(-1.0, -3.0), temperature=0.4, no_speech_prob=0.25),
        Segment(3_600_000, 3_600_500, "two", logprobs=(-math.inf,), clip_ms=3_599_990),
    ),
    words=(Word(3_600_000, 3_600_500, "two"),),
    tokens=(SpokenToken("one", (1,), (-0.5,)), SpokenToken(" two", (2,), (math.nan,))),
)


def test_seconds_seek_and_means() -> None:
    body = verbose_body(LONG, View("transcribe", granularities=frozenset({"segment", "word"})))
    first, second = body["segments"]
    assert (body["language"], body["duration"], body["usage"]["seconds"]) == ("cantonese", 7200.001, 7201)
    assert (first["avg_logprob"], first["temperature"], first["no_speech_prob"]) == (-2.0, 0.4, 0.25)
    assert (second["id"], second["seek"], second["start"], second["end"]) == (1, 359_999, 3600.0, 3600.5)
    assert body["words"] == [{"word": "two", "start": 3600.0, "end": 3600.5}]


def test_no_number_is_none() -> None:
    assert verbose_body(LONG, View("transcribe"))["segments"][1]["avg_logprob"] == LEAST_LOGPROB
    tokens = json_body(LONG, View("transcribe", logprobs=True))["logprobs"]
    assert [token["logprob"] for token in tokens] == [-0.5, LEAST_LOGPROB]


def test_repetition_shows_in_the_ratio_and_nothing_is_zero() -> None:
    view = View("transcribe")

    def ratio(text: str) -> float:
        body = verbose_body(Transcript(text, None, 1.0, (Segment(0, 1, text),)), view)
        value: float = body["segments"][0]["compression_ratio"]
        return value

    assert ratio("la " * 200) > 20
    assert ratio("好" * 3) == 9 / len(zlib.compress("好好好".encode()))
    assert ratio("") == 0


PARTS = Transcript(
    text="one zwei",
    language="en",
    duration=4.0,
    coverage=(
        Stretch(0, 8000, "decoded"),
        Stretch(8000, 16_000, "silent", "skipped"),
        Stretch(16_000, 24_000, "redecoded"),
        Stretch(24_000, 32_000, "lost", "speech without text"),
        Stretch(24_000, 24_000, "lost", "a damaged page"),
    ),
    guards=(Guard("early_end", 2000, 4000, "the text ended before the speech"),),
    languages=("en", "de"),
    stable_speakers=False,
)


def test_what_became_of_the_audio_is_told_in_seconds_and_samples() -> None:
    body = json_body(PARTS, View("transcribe"))
    assert body["languages"] == [{"code": "en"}, {"code": "de"}]
    told = body["x_asr"]
    assert told["coverage"][1] == {
        "start_sample": 8000,
        "end_sample": 16_000,
        "start": 1.0,
        "end": 2.0,
        "state": "silent",
        "note": "skipped",
    }
    assert [part["end"] for part in told["coverage"]] == [1.0, 2.0, 3.0, 4.0, 3.0]
    assert told["guards"] == [
        {"kind": "early_end", "start": 2.0, "end": 4.0, "note": "the text ended before the speech"}
    ]
    assert told["speakers_stable"] is False
    assert "speakers_stable" not in json_body(LONG, View("transcribe"))["x_asr"]


def test_a_header_has_the_seconds_too_and_holes_that_have_none() -> None:
    headers = FORMATS["text"].render(PARTS, View("transcribe")).headers
    expected = "decoded=1.000, redecoded=1.000, silent=1.000, lost=1.000, guards=1, holes=1"
    assert headers["x-asr-coverage"] == expected


@pytest.mark.parametrize(("code", "name"), [("de", "german"), ("zh", "chinese"), (None, "unknown"), ("qqx", "qqx")])
def test_a_language_has_its_english_name(code: str | None, name: str) -> None:
    assert verbose_body(Transcript("", code, 0.0), View("transcribe"))["language"] == name
    assert verbose_body(Transcript("", code, 0.0), View("translate", "english"))["language"] == "english"
