"""The second route: English out of whatever was said, by models that can."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.audio import Translation, TranslationVerbose

from asr_core.testing.http_contract import TRANSLATIONS, check_segments, error_of
from asr_core.testing.server import Server

# OpenAI's client calls its own method deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")


def test_the_client_gets_the_translation(server: Server, wav: Any) -> None:
    answer = server.client().audio.translations.create(model="able", file=wav("0123456789"))
    assert type(answer) is Translation
    # The model shows by leaving out the end that it was asked to translate.
    assert answer.text == "012345"


def test_the_verbose_answer_is_english_whatever_was_said(server: Server, wav: Any) -> None:
    answer = server.client().audio.translations.create(
        model="able", file=wav("0123456789"), response_format="verbose_json", prompt="digits", temperature=0.2
    )
    assert type(answer) is TranslationVerbose
    assert (answer.language, answer.text, answer.duration) == ("english", "012345", pytest.approx(0.83))
    body = answer.to_dict()
    assert body["task"] == "translate"
    assert body["segments"][0]["temperature"] == 0.2
    check_segments(body)


@pytest.mark.parametrize("name", ["text", "srt", "vtt"])
def test_formats_in_text(server: Server, wav: Any, name: str) -> None:
    text = server.client().audio.translations.create(model="able", file=wav("0123456789"), response_format=name)
    assert "012345" in text
    assert "6" not in text.replace("0.6", "").replace("0,6", "")


def test_a_model_that_cannot_translate(server: Server, wav: Any) -> None:
    error = error_of(server.post(("model", "fake"), ("file", wav("x")), path=TRANSLATIONS), 400)
    assert (error["param"], error["code"], error["x_asr"]) == (
        "model",
        "unsupported_value",
        {"layer": "capabilities"},
    )
    assert error["message"] == "model 'fake' cannot translate; it can transcribe"


@pytest.mark.parametrize(
    "field",
    [
        "language",
        "languages[]",
        "keywords[]",
        "include[]",
        "timestamp_granularities[]",
        "stream",
        "chunking_strategy",
        "chunking_strategy[type]",
        "known_speaker_names[]",
        "task",
    ],
)
def test_fields_of_the_other_route_are_unknown(server: Server, wav: Any, field: str) -> None:
    parts = [("model", "able"), (field, "x"), ("file", wav("x"))]
    error = error_of(server.post(*parts, path=TRANSLATIONS), 400)
    assert (error["param"], error["code"]) == (field, "unknown_parameter")
    assert error["message"].endswith("known are behaviour, file, model, prompt, response_format, temperature")


def test_speakers_are_not_translated(server: Server, wav: Any) -> None:
    parts = [("model", "able"), ("response_format", "diarized_json"), ("file", wav("x"))]
    assert error_of(server.post(*parts, path=TRANSLATIONS), 400)["param"] == "response_format"


def test_both_routes_refuse_alike(server: Server, wav: Any) -> None:
    for parts in ([("file", wav("x"))], [("model", "none")], [("model", "able"), ("file", b"no sound at all")]):
        ours, theirs = server.post(*parts), server.post(*parts, path=TRANSLATIONS)
        assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())
    assert server.http.post(TRANSLATIONS, json={}).status_code == 400
    assert server.http.get(TRANSLATIONS).status_code == 405
