"""Every refusal has OpenAI's envelope and says what to mend."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from attrs import evolve
from starlette.types import Message

from asr_core.errors import ModelNotFoundError
from asr_core.serve import create_app
from asr_core.serve.catalog import Catalog
from asr_core.testing.http_contract import error_of
from asr_core.types import ServerLimits

MIB = 1024 * 1024
LIMIT = 26_214_400
FORM = "multipart/form-data; boundary=b"


@pytest.mark.parametrize(
    ("field", "value", "code", "says"),
    [
        ("response_format", "srt", "unsupported_value", "'json' or 'text' or 'verbose_json'"),
        ("response_format", "JSON", "unsupported_value", "'JSON'"),
        ("stream", "1", "invalid_value", "true or false"),
        ("temperature", "warm", "invalid_value", "a number, not 'warm'"),
        ("temperature", "nan", "invalid_value", "finite"),
        ("temperature", "1.5", "invalid_value", "0 to 1"),
        ("temperature", "-0.1", "invalid_value", "0 to 1"),
        ("language", "xx", "unsupported_value", "de, en"),
        ("count", "1.5", "invalid_value", "an integer"),
        ("count", "9" * 5000, "invalid_value", "an integer"),
        ("ratio", "inf", "invalid_value", "finite"),
        ("loud", "yes", "invalid_value", "true or false"),
        ("mood", "angry", "invalid_value", "glad, sad"),
        ("voice", "data:audio/wav;base64,AAAA", "invalid_value", "not offered yet"),
        ("prompt", "typed", "odd", "no such prompt"),
    ],
)
def test_a_value_that_cannot_be_served(server: Any, wav: Any, field: str, value: str, code: str, says: str) -> None:
    error = error_of(server.post(("model", "echo"), (field, value), ("file", wav("x"))), 400)
    assert (error["param"], error["code"]) == (field, code)
    assert says in error["message"]


@pytest.mark.parametrize(
    ("field", "param", "code"),
    [
        ("known_speaker_names[]", "known_speaker_names", "unsupported_value"),
        ("known_speaker_references", "known_speaker_references", "unsupported_value"),
        ("max_new_tokens", "max_new_tokens", "unknown_parameter"),
        ("language[]", "language[]", "unknown_parameter"),
        ("behaviour", "behaviour", "unknown_parameter"),
        ("task", "task", "unknown_parameter"),
        ("f" * 1000, "f" * 64, "unknown_parameter"),
    ],
)
def test_a_field_that_is_not_taken_is_named(server: Any, wav: Any, field: str, param: str, code: str) -> None:
    error = error_of(server.post(("model", "echo"), (field, "json"), ("file", wav("x"))), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert param in error["message"]


@pytest.mark.parametrize("field", ["model", "language", "prompt", "temperature", "response_format", "stream", "count"])
def test_a_repeated_field(server: Any, wav: Any, field: str) -> None:
    parts = [("model", "echo")] * (field != "model") + [(field, "0"), (field, "0"), ("file", wav("x"))]
    error = error_of(server.post(*parts), 400)
    assert error["param"] == field
    assert "more than once" in error["message"]


@pytest.mark.parametrize(
    ("field", "value"), [("prompt", "x"), ("language", "en"), ("keywords[]", "x"), ("temperature", "0.5")]
)
def test_what_the_model_has_no_use_for(server: Any, wav: Any, field: str, value: str) -> None:
    error = error_of(server.post(("model", "fake"), (field, value), ("file", wav("x"))), 400)
    assert (error["param"], error["code"]) == (field.removesuffix("[]"), "unsupported_value")
    assert error["x_asr"] == {"layer": "capabilities"}


def test_a_text_field_sent_as_a_file(server: Any, wav: Any) -> None:
    error = error_of(server.post(("model", "echo"), ("prompt", b"words"), ("file", wav("x"))), 400)
    assert error["param"] == "prompt"
    assert "must be text" in error["message"]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([], "you must provide file"),
        ([("file", "text")], "Invalid file format"),
        ([("file", b"")], "empty"),
        ([("file", b"1"), ("file", b"2")], "exactly once"),
        ([("file", b"\x00\x01\x02\x03" * 100)], "Invalid file format"),
        ([("file", b"ffconcat version 1.0\nfile /etc/passwd\n")], "Invalid file format"),
    ],
    ids=["missing", "text", "empty", "twice", "noise", "playlist"],
)
def test_a_file_that_is_none(server: Any, parts: list[tuple[str, Any]], says: str) -> None:
    error = error_of(server.post(("model", "fake"), *parts), 400)
    assert (error["param"], error["code"]) == ("file", "invalid_value")
    assert says in error["message"]


def test_options_are_refused_before_the_audio_is_looked_at(server: Any) -> None:
    error = error_of(server.post(("model", "fake"), ("behaviour", "wild"), ("file", b"not audio")), 400)
    assert error["param"] == "behaviour"
    assert "early_end" in error["message"]


def test_no_model(server: Any, wav: Any) -> None:
    error = error_of(server.post(("file", wav("x"))), 400)
    assert (error["param"], error["code"]) == ("model", "missing_required_parameter")


def test_an_unknown_model_is_answered_with_near_names(server: Any, wav: Any) -> None:
    error = error_of(server.post(("model", "fakke"), ("file", wav("x"))), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "did you mean fake" in error["message"]
    with pytest.raises(openai.NotFoundError, match="served: fake, org/echo, able"):
        server.client().models.retrieve("zzzzzzzzz")


def test_what_the_operator_typed_is_found_but_not_shown(fake: Any) -> None:
    """It may be a path."""
    checkpoint = evolve(fake.served.model.checkpoint, reference="/srv/secret/model")
    catalog = Catalog({"fake": evolve(fake.served, model=evolve(fake.served.model, checkpoint=checkpoint))})
    assert catalog.find("/srv/secret/model").card.name == "fake"
    with pytest.raises(ModelNotFoundError, match=r"'/srv/secret/modl' is not served here; served: fake$"):
        catalog.find("/srv/secret/modl")


def test_a_fault_of_the_plugin_is_ours_and_only_the_log_tells_it(server: Any, wav: Any) -> None:
    answer = server.post(("model", "echo"), ("prompt", "fail"), ("file", wav("x")))
    error = error_of(answer, 500)
    assert (error["param"], error["code"], error["x_asr"]) == (None, "internal_error", {"layer": "plugins"})
    assert "/etc/passwd" not in error["message"]
    assert answer.headers["x-request-id"] in error["message"]
    server.wait_for("ValueError: secret of /etc/passwd")


def test_a_fault_of_the_engine(server: Any, wav: Any) -> None:
    error = error_of(server.post(("model", "fake"), ("behaviour", "raise"), ("file", wav("abcdef"))), 500)
    assert (error["code"], error["x_asr"]) == ("internal_error", {"layer": "engine"})
    assert server.post(("model", "fake"), ("file", wav("next"))).json()["text"] == "next"


def test_the_client_reads_our_errors(server: Any, wav: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.client().audio.transcriptions.create(model="fake", file=wav("x"), prompt="hint")
    assert (caught.value.param, caught.value.code, caught.value.type) == (
        "prompt",
        "unsupported_value",
        "invalid_request_error",
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/v1"), ("POST", "/v1/audio/speech"), ("GET", "/health/"), ("GET", "/%0aforged%20line")],
)
def test_an_unknown_path(server: Any, method: str, path: str) -> None:
    answer = server.http.request(method, path)
    error = error_of(answer, 404)
    assert (error["param"], error["code"]) == (None, "unknown_url")
    # One line, with what the path wraps still wrapped.
    server.wait_for(rf"{method} {path} 404 .*{answer.headers['x-request-id']}")


def test_a_path_moves_no_cursor(fake: Any, caplog: pytest.LogCaptureFixture) -> None:
    """HTTP/2 lets more into a path than HTTP/1.1 does."""
    app = create_app({"fake": fake.served}, ServerLimits())
    scope = {"type": "http", "method": "GET", "path": "/\x1b[2J", "raw_path": b"/%0a\x1b[2J\xe9 x", "headers": []}

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    with caplog.at_level("INFO", "asr_core.access"):
        asyncio.run(app(scope, receive, send))
    assert caplog.messages[0].startswith("GET /%0a%1B[2J%E9%20x 404 ")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/audio/transcriptions", {"POST"}),
        ("DELETE", "/v1/models/fake", {"GET", "HEAD"}),
        ("POST", "/health", {"GET", "HEAD"}),
    ],
)
def test_a_method_that_is_not_allowed(server: Any, method: str, path: str, allow: set[str]) -> None:
    answer = server.http.request(method, path)
    assert error_of(answer, 405)["code"] == "method_not_allowed"
    assert set(answer.headers["allow"].split(", ")) == allow


@pytest.mark.parametrize(
    ("content_type", "body", "says"),
    [
        ("application/json", b'{"model": "fake"}', "multipart/form-data, not application/json"),
        ("application/x-www-form-urlencoded", b"model=fake", "must be multipart/form-data"),
        (None, b"x", "not untyped"),
        ("multipart/form-data", b"--b--\r\n", "boundary"),
        (FORM, b"", "closing boundary"),
        (FORM, b"no part in sight", "Invalid multipart"),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nfa', "closing boundary"),
        (FORM, b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n", "name"),
        (FORM, b"--b\r\nno header\r\n\r\nx\r\n--b--\r\n", "Invalid multipart"),
    ],
    ids=["json", "urlencoded", "untyped", "no-boundary", "empty", "garbage", "cut-off", "no-name", "bad-header"],
)
def test_a_body_that_is_no_form(server: Any, content_type: str | None, body: bytes, says: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    error = error_of(server.http.post("/v1/audio/transcriptions", content=body, headers=headers), 400)
    assert says in error["message"]


def test_too_many_fields(server: Any) -> None:
    error = error_of(server.post(*[("keywords[]", "x")] * 65, ("model", "echo")), 400)
    assert "Maximum number of fields is 64" in error["message"]


def test_too_long_a_field(server: Any) -> None:
    error = error_of(server.post(("model", "echo"), ("prompt", "x" * (MIB + 1))), 400)
    assert "maximum size of 1024KB" in error["message"]


def test_a_file_just_over_the_limit(server: Any) -> None:
    error = error_of(server.post(("model", "fake"), ("file", bytes(LIMIT + 1))), 413)
    assert error["message"] == f"Maximum content size limit ({LIMIT}) exceeded ({LIMIT + 1} bytes read)"
    assert error["x_asr"] == {"layer": "upload_limits"}


def test_the_client_hears_that_it_is_too_much(server: Any) -> None:
    with pytest.raises(openai.APIStatusError, match=r"Maximum content size limit \(26214400\) exceeded") as caught:
        server.client().audio.transcriptions.create(model="fake", file=bytes(LIMIT + 8 * MIB))
    assert caught.value.status_code == 413


@pytest.mark.parametrize(("path", "status"), [("/v1/audio/transcriptions", 413), ("/nowhere", 404)])
def test_a_client_that_listens_only_after_sending_is_not_cut_off(server: Any, path: str, status: int) -> None:
    connection = server.connect()
    length = LIMIT + 8 * MIB
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {FORM}\r\n".encode())
    connection.sendall(f"Content-Length: {length}\r\n\r\n".encode())
    connection.sendall(bytes(length))
    assert connection.recv(65536).startswith(f"HTTP/1.1 {status} ".encode())


def test_an_announced_length_is_refused_before_it_arrives(server: Any) -> None:
    connection = server.connect()
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: {FORM}\r\nContent-Length: {10**12}\r\n\r\n"
    )
    connection.sendall(head.encode())
    answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"exceeded (1000000000000 bytes read)" in answer + connection.recv(65536) * (b"exceeded" not in answer)


def test_a_chunked_body_is_measured_on_its_way_in(server: Any) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(40):
            yield bytes(MIB)

    answer = server.http.post("/v1/audio/transcriptions", content=chunks(), headers={"content-type": FORM})
    assert error_of(answer, 413)["message"].startswith(f"Maximum content size limit ({LIMIT}) exceeded (")
