"""Every field in every spelling: what reaches the model, what is refused, and by which name."""

from __future__ import annotations

from typing import Any

import pytest

from asr_core.testing import raw_http
from asr_core.testing.http_contract import body_of, error_of
from asr_core.testing.server import TRANSCRIPTIONS, Server

VERBOSE = ("response_format", "verbose_json")


def ask(server: Server, wav: Any, *parts: tuple[str, Any], model: str = "able") -> Any:
    return server.post(("model", model), *parts, ("file", wav("ab cd")))


def raw(server: Server, disposition: bytes, wav: Any) -> Any:
    """A form whose file part has this disposition and no type."""
    body = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nfake\r\n'
    body += b"--b\r\nContent-Disposition: " + disposition + b"\r\n\r\n" + wav("named") + b"\r\n--b--\r\n"
    return server.http.post(TRANSCRIPTIONS, content=body, headers={"content-type": "multipart/form-data; boundary=b"})


def in_charset(server: Server, charset: str, file: bytes) -> Any:
    """A form that says it is in ``charset``."""
    headers = {"content-type": f"multipart/form-data; boundary=b; charset={charset}"}
    return server.http.post(TRANSCRIPTIONS, content=raw_http.body_of(file, model="fake"), headers=headers)


@pytest.mark.parametrize(
    "disposition",
    [
        'form-data; name="file"',
        'form-data; name="file"; filename=""',
        'form-data; filename="a.wav"; name="file"',
        "form-data; name=file; filename=a.wav",
        'form-data; name="file"; filename="../../etc/passwd"',
        'form-data; name="file"; filename="C:\\\\temp\\\\a.mp3"',
        'form-data; name="file"; filename="a\\"b.wav"',
        'form-data; name="file"; filename="%22;.wav"',
        'form-data; name="file"; filename="录音 запись.wav"',
        'form-data; name="file"; filename="x"; filename*=UTF-8\'\'%e5%bd%95.wav',
        'form-data; name="file"; filename="' + "n" * 1000 + '"',
    ],
)
def test_the_file_may_be_called_anything_or_nothing(server: Server, wav: Any, disposition: str) -> None:
    assert body_of(raw(server, disposition.encode(), wav))["text"] == "named"


@pytest.mark.parametrize("kind", ["audio/mpeg", "image/png", "application/json", "nonsense"])
def test_the_type_of_the_part_means_nothing(server: Server, wav: Any, kind: str) -> None:
    files = {"file": ("x.flac", wav("typed"), kind)}
    assert server.http.post(TRANSCRIPTIONS, data={"model": "fake"}, files=files).json()["text"] == "typed"


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([], "en"),
        ([("language", "de")], "de"),
        ([("language", "de-AT")], "de"),
        ([("language", "German")], "de"),
        ([("language", "auto"), ("languages[]", "de")], "de"),
        ([("languages[]", "de"), ("languages[]", "en")], "de"),
        ([("languages", "DE"), ("languages[]", "en")], "de"),
        ([("languages[]", "English")], "en"),
    ],
)
def test_languages(server: Server, wav: Any, parts: list[tuple[str, str]], code: str) -> None:
    assert body_of(ask(server, wav, *parts))["languages"] == [{"code": code}]
    name = {"de": "german", "en": "english"}[code]
    assert body_of(ask(server, wav, VERBOSE, *parts))["language"] == name


def test_candidates_and_a_language_at_once(server: Server, wav: Any) -> None:
    error = error_of(ask(server, wav, ("language", "de"), ("languages[]", "en")), 400)
    assert (error["param"], error["code"]) == ("languages", "invalid_value")


@pytest.mark.parametrize("field", ["languages[]", "languages"])
def test_candidates_the_model_does_not_know_or_take(server: Server, wav: Any, field: str) -> None:
    error = error_of(ask(server, wav, (field, "de"), (field, "fr")), 400)
    assert (error["param"], error["code"]) == ("languages", "unsupported_value")
    assert error_of(ask(server, wav, (field, "de"), model="fake"), 400)["param"] == "languages"


@pytest.mark.parametrize(
    ("value", "streamed"), [("true", True), ("True", True), ("false", False), ("null", False), ("", False)]
)
def test_stream(server: Server, wav: Any, value: str, streamed: bool) -> None:
    answer = ask(server, wav, ("stream", value))
    assert answer.status_code == 200
    assert (answer.headers["content-type"] == "text/event-stream; charset=utf-8") == streamed


@pytest.mark.parametrize("value", ["1", "0", "yes", "on"])
def test_what_is_no_boolean(server: Server, wav: Any, value: str) -> None:
    assert error_of(ask(server, wav, ("stream", value)), 400)["param"] == "stream"


@pytest.mark.parametrize("units", [["word"], ["segment"], ["word", "segment"], ["segment", "word"], ["word", "word"]])
@pytest.mark.parametrize("key", ["timestamp_granularities", "timestamp_granularities[]"])
def test_granularities(server: Server, wav: Any, key: str, units: list[str]) -> None:
    body = body_of(ask(server, wav, VERBOSE, *((key, unit) for unit in units)))
    assert {section for section in ("segments", "words") if section in body} == {f"{unit}s" for unit in units}


def test_without_granularities_there_are_segments(server: Server, wav: Any) -> None:
    body = body_of(ask(server, wav, VERBOSE))
    assert ("segments" in body, "words" in body) == (True, False)


@pytest.mark.parametrize(
    ("parts", "param", "code", "says"),
    [
        ([("timestamp_granularities[]", "sentence"), VERBOSE], "timestamp_granularities", "invalid_value", "word"),
        ([("timestamp_granularities[]", "words"), VERBOSE], "timestamp_granularities", "invalid_value", "word"),
        ([("timestamp_granularities[]", "word")], "timestamp_granularities", "unsupported_value", "'verbose_json'"),
        ([("timestamp_granularities", "segment"), ("response_format", "srt")],
         "timestamp_granularities", "unsupported_value", "'verbose_json'"),
        ([("include[]", "logprobs"), VERBOSE], "include", "unsupported_value", "'json'"),
        ([("include", "logprobs"), ("response_format", "diarized_json")], "include", "unsupported_value", "'json'"),
        ([("include[]", "logits")], "include", "invalid_value", "logprobs"),
        ([("temperature", "1e400")], "temperature", "invalid_value", "finite"),
        ([("temperature", "-1")], "temperature", "invalid_value", "0 to 1"),
        ([("temperature", "0,5")], "temperature", "invalid_value", "a number"),
        ([("known_speaker_names[]", "Ann")], "known_speaker_names", "unsupported_value", "no model"),
        ([("known_speaker_names[]", "x")] * 5, "known_speaker_names", "invalid_value", "at most 4"),
        ([("known_speaker_references[]", "data:,x")] * 5, "known_speaker_references", "invalid_value", "at most 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    server: Server, wav: Any, parts: list[tuple[str, str]], param: str, code: str, says: str
) -> None:
    error = error_of(ask(server, wav, *parts), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert says in error["message"]


def test_words_of_a_model_that_has_none(server: Server, wav: Any) -> None:
    error = error_of(ask(server, wav, VERBOSE, ("timestamp_granularities[]", "word"), model="fake"), 400)
    assert (error["param"], error["code"]) == ("timestamp_granularities", "unsupported_value")


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf-8"', "us-ascii", "iso-8859-1"])
def test_a_charset_that_may_be_named(server: Server, wav: Any, charset: str) -> None:
    assert body_of(in_charset(server, charset, wav("named")))["text"] == "named"


@pytest.mark.parametrize("charset", ["punycode", "unicode_escape", "utf-7", "utf-16", "hex", "nonsense", ""])
def test_a_charset_that_is_not_taken(server: Server, wav: Any, charset: str) -> None:
    """Some that Python knows take minutes for a field, others make half characters."""
    error = error_of(in_charset(server, charset, wav("x")), 400)
    assert error["message"] == f"the form must be in UTF-8, not {charset!r}"


def test_a_temperature_reaches_the_sampler(server: Server, wav: Any) -> None:
    segment = body_of(ask(server, wav, VERBOSE, ("temperature", "0.25")))["segments"][0]
    assert segment["temperature"] == 0.25


def test_everything_at_once_and_the_file_first(server: Server, wav: Any) -> None:
    fields = [
        ("languages[]", "de"),
        ("languages[]", "en"),
        ("prompt", "names"),
        ("keywords[]", "ab"),
        ("keywords", "cd"),
        VERBOSE,
        ("temperature", "0"),
        ("timestamp_granularities[]", "word"),
        ("stream", "false"),
        ("chunking_strategy", "auto"),
        ("behaviour", "plain"),
    ]
    body = body_of(server.post(("file", wav("ab cd")), *fields, ("model", "able")))
    assert (body["text"], body["language"]) == ("ab cd", "german")
