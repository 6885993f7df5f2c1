"""One line a request, of what an operator needs and of nothing a caller said."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from asr_core.serve.logs import FACTS, JsonFormatter

SECRETS = ("sesame", "key-of-alice")


@pytest.fixture(scope="module")
def logged(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server that logs JSON and wants a key."""
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text("key-of-alice\n")
    return start("--model", "fake", "--model", "able", "--log-format", "json", "--api-key-file", str(path))


def lines(server: Any, request_id: str) -> list[dict[str, Any]]:
    """What was logged of a request."""
    server.wait_for(f'"request_id": "{re.escape(request_id)}"')
    found = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
    return [line for line in found if line.get("request_id") == request_id]


HEADERS = {"authorization": "Bearer key-of-alice"}


@pytest.mark.parametrize("stream", ["false", "true"])
def test_an_answer(logged: Any, wav: Any, stream: str) -> None:
    answer = logged.http.post(
        "/v1/audio/transcriptions?sesame=1",
        data={"model": "able", "prompt": "sesame", "keywords[]": "sesame", "stream": stream},
        files={"file": ("sesame.wav", wav("open sesame"))},
        headers=HEADERS,
    )
    assert "open sesame" in answer.text.replace('"}\n\ndata: {"type": "transcript.text.delta", "delta": "', "")
    (line,) = lines(logged, answer.headers["x-request-id"])
    assert list(line) == [
        *("time", "level", "logger", "method", "path", "status", "ms", "request_id", "model", "audio_seconds")
    ]
    said = {name: line[name] for name in ("level", "logger", "method", "path", "status", "model", "audio_seconds")}
    assert said == {
        "level": "info",
        "logger": "asr_core.access",
        "method": "POST",
        "path": "/v1/audio/transcriptions",
        "status": 200,
        "model": "able",
        "audio_seconds": 0.91,
    }
    assert isinstance(line["ms"], int)
    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


def test_a_refusal(logged: Any, wav: Any) -> None:
    answer = logged.post(("model", "sesame"), ("sesame", "sesame"), ("file", wav("x")), headers=HEADERS)
    (line,) = lines(logged, answer.headers["x-request-id"])
    assert (line["status"], line["model"], line["audio_seconds"]) == (404, None, 0.0)


def test_a_key_that_is_wrong(logged: Any) -> None:
    answer = logged.http.get("/v1/models", headers={"authorization": "Bearer sesame"})
    (line,) = lines(logged, answer.headers["x-request-id"])
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/models", 401)


def test_the_callers_own_id(logged: Any) -> None:
    answer = logged.http.get("/health", headers={"x-request-id": "from-a.caller_7"})
    assert answer.headers["x-request-id"] == "from-a.caller_7"
    assert lines(logged, "from-a.caller_7")[0]["status"] == 200


@pytest.mark.parametrize("given", ["", "with space", "x" * 65, '"},{"', "ünï", "a\tb"])
def test_an_id_that_could_forge_a_line(logged: Any, given: str) -> None:
    answer = logged.http.get("/health", headers={"x-request-id": given.encode()})
    assert re.fullmatch("req_[0-9a-f]{32}", answer.headers["x-request-id"])


def test_a_fault_has_its_traceback_and_still_one_line(logged: Any, wav: Any) -> None:
    answer = logged.post(("model", "fake"), ("behaviour", "raise"), ("file", wav("abcdef")), headers=HEADERS)
    id_ = answer.headers["x-request-id"]
    assert lines(logged, id_)[0]["status"] == 500
    found = [json.loads(line) for line in logged.output.splitlines() if "Traceback" in line]
    assert any(line["level"] == "error" and id_ in line.get("message", "") for line in found)


def test_nothing_a_caller_said_is_logged(logged: Any) -> None:
    """After all of the above; pytest runs a module from top to bottom."""
    for secret in SECRETS:
        assert secret not in logged.output
    *_, serving, example = [line for line in logged.output.splitlines() if not line.startswith("{")]
    assert (serving.split()[0], example.split()[0]) == ("serving", "try:")


def test_the_text_format_says_the_same(server: Any, wav: Any) -> None:
    id_ = server.post(("model", "fake"), ("file", wav("open sesame"))).headers["x-request-id"]
    server.wait_for(rf"INFO asr_core.access: POST /v1/audio/transcriptions 200 \d+ ms {id_} model=fake audio=0.91\n")
    assert "sesame" not in server.output


def test_no_record_breaks_a_line() -> None:
    try:
        raise ValueError("two\nlines\u2028three")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "a\nb %s", ("\x1b",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == "a\nb \x1b"
    assert "two\nlines" in json.loads(line)["traceback"]
    setattr(record, FACTS, {"status": 200})
    assert "message" not in json.loads(JsonFormatter().format(record))
