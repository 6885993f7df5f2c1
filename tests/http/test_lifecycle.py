"""A server that is told to stop finishes its work."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx

from asr_core.testing.raw_http import begin, body_of, finish

HOURS = "x" * 700
"""Text of 56 s; spoken slowly it takes the model 35 s."""


def until_not_ready(server: Any) -> httpx.Response:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if (answer := server.http.get("/ready")).status_code != 200:
            return answer
    raise AssertionError("still ready")


def test_a_running_request_is_finished_and_new_ones_are_refused(start: Callable[..., Any], wav: Any) -> None:
    server = start("--model", "fake")
    body = body_of(wav("take your time"), model="fake", behaviour="slow")
    running = begin(server, body)
    server.process.send_signal(signal.SIGTERM)
    for answer in (until_not_ready(server), server.post(("model", "fake"), ("file", wav("late")))):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["message"] == "the server is shutting down"
        assert answer.json()["error"]["type"] == "server_error"
    assert server.http.get("/health").status_code == 200
    running.sendall(body)
    status, answered = finish(running)
    assert (status, answered["text"]) == (200, "take your time")
    assert server.process.wait(30) == 0


def test_patience_ends_and_the_request_hears_of_it(start: Callable[..., Any], wav: Any) -> None:
    server = start("--model", "fake", "--drain-seconds", "0.5", "--host", "0.0.0.0")  # noqa: S104
    assert re.search("warning: 0.0.0.0 is no loopback address", server.output)
    body = body_of(wav(HOURS), model="fake", behaviour="slow")
    running = begin(server, body)
    running.sendall(body)
    server.process.send_signal(signal.SIGINT)
    status, answered = finish(running)
    assert (status, answered["error"]["message"]) == (503, "the server shut down before this was done")
    assert server.process.wait(30) == 0


def test_a_second_signal_does_not_wait(start: Callable[..., Any], wav: Any) -> None:
    server = start("--model", "fake", "--drain-seconds", "3600")
    running = begin(server, body_of(wav(HOURS), model="fake"))
    server.process.send_signal(signal.SIGTERM)
    until_not_ready(server)
    server.process.send_signal(signal.SIGTERM)
    status, answered = finish(running)
    assert (status, answered["error"]["x_asr"]) == (503, {"layer": "server"})
    assert server.process.wait(30) == 0
    assert "ERROR" not in server.output


def test_a_stream_hears_that_patience_ended(start: Callable[..., Any], wav: Any) -> None:
    server = start("--model", "fake", "--drain-seconds", "0.5")
    connection = begin(server, body := body_of(wav(HOURS), model="fake", behaviour="slow", stream="true"))
    connection.sendall(body)
    answer = connection.recv(65536)
    server.process.send_signal(signal.SIGTERM)
    while data := connection.recv(65536):
        answer += data
    *_, last = re.findall(rb"data: (.*)\n\n", answer)
    assert json.loads(last)["error"]["message"] == "the server shut down before this was done"
    assert answer.endswith(b"\r\n0\r\n\r\n")
    assert server.process.wait(30) == 0


def test_the_first_words_of_a_server(server: Any) -> None:
    told = server.output.splitlines()
    assert told[:4] == [
        "fake: engine torch, cpu, float32",
        "org/echo: engine torch, cpu, float32",
        "able: engine torch, cpu, float32",
        f"serving on {server.url}",
    ]
    assert f"curl {server.url}/v1/audio/transcriptions -F model=fake" in told[4]
