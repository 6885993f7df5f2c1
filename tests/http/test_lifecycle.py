"""A server that is told to stop finishes its work; a client that leaves takes its work along."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

HOURS = "x" * 700
"""Text of 56 s; spoken slowly it takes the model 35 s."""


def head_of(length: int) -> bytes:
    lines = [
        "POST /v1/audio/transcriptions HTTP/1.1",
        "Host: x",
        "Content-Type: multipart/form-data; boundary=b",
        f"Content-Length: {length}",
        "Expect: 100-continue",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def body_of(file: bytes, **fields: str) -> bytes:
    part = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    texts = [part % (name.encode(), b"", value.encode()) for name, value in fields.items()]
    return b"".join([*texts, part % (b"file", b'; filename="x"', file), b"--b--\r\n"])


def begin(server: Any, body: bytes) -> socket.socket:
    """A request of which the server has the head: it has said so."""
    connection: socket.socket = server.connect()
    connection.sendall(head_of(len(body)))
    assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
    return connection


def finish(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    answer = b""
    while data := connection.recv(65536):
        answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


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


UNSEEN = " " * 700
"""As long, but there is nothing to send before it ends."""


@pytest.mark.parametrize(
    ("text", "fields", "first"),
    [
        (HOURS, {}, None),
        (UNSEEN, {"stream": "true"}, None),
        (HOURS, {"stream": "true"}, b'data: {"type": "transcript.text.delta", "delta": "x"}'),
    ],
    ids=["plain", "streamed, before the first byte", "streamed, after it"],
)
def test_a_client_that_leaves_frees_what_it_took(
    server: Any, wav: Any, text: str, fields: dict[str, str], first: bytes | None
) -> None:
    left, before = server.output.count(" 499 "), server.engine("fake")
    connection = begin(server, body := body_of(wav(text), model="fake", behaviour="slow", **fields))
    connection.sendall(body)
    server.wait_for_engine("fake", running=1)
    answer = b""
    while first is not None and first not in answer:
        answer += connection.recv(65536)
    connection.close()
    after = server.wait_for_engine("fake", running=0)
    assert (after["aborted"] - before["aborted"], after["finished"] - before["finished"]) == (1, 0)
    assert after["tokens"] - before["tokens"] < len(text)
    server.wait_for(rf"(?s)( 499 .*){{{left + 1}}}")
    assert server.post(("model", "fake"), ("file", wav("next"))).json()["text"] == "next"


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


def test_a_client_that_leaves_while_it_uploads(server: Any, wav: Any) -> None:
    before = server.output.count(" 499 ")
    connection = begin(server, body_of(wav("x"), model="fake"))
    connection.sendall(b"--b\r\n")
    connection.close()
    server.wait_for(rf"(?s)( 499 .*){{{before + 1}}}")


def test_the_first_words_of_a_server(server: Any) -> None:
    told = server.output.splitlines()
    assert told[:3] == [
        "fake: engine torch, cpu, float32",
        "org/echo: engine torch, cpu, float32",
        f"serving on {server.url}",
    ]
    assert f"curl {server.url}/v1/audio/transcriptions -F model=fake" in told[3]
