"""A client that leaves takes its work along, wherever it stands, and nobody else's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from asr_core.testing.raw_http import begin, body_of

LONG = "x" * 700
"""Text of 56 s; spoken slowly it takes the model 35 s."""

UNSEEN = " " * 700
"""As long, but there is nothing to send before it ends."""

SLOTS = 16
"""Requests that the engine runs at once."""


def metric(server: Any, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", server.http.get("/metrics").text, re.MULTILINE)
    assert found, name
    return float(found.group(1))


def wait_for_metric(server: Any, name: str, holds: Callable[[float], bool]) -> None:
    for _ in range(3000):
        if holds(metric(server, name)):
            return
    raise AssertionError(f"{name} is {metric(server, name)}")


@pytest.fixture(scope="module")
def alone(start: Callable[..., Any]) -> Any:
    """A server nobody else asks, with room for 60 s of sound and much patience."""
    return start("--model", "fake", "--max-seconds", "60", "--max-total-seconds", "60", "--max-wait", "600")


@pytest.mark.parametrize(
    ("text", "fields", "first"),
    [
        (LONG, {}, None),
        (UNSEEN, {"stream": "true"}, None),
        (LONG, {"stream": "true"}, b'data: {"type": "transcript.text.delta", "delta": "x"'),
    ],
    ids=["plain", "streamed, before the first byte", "streamed, after it"],
)
def test_while_the_model_speaks(alone: Any, wav: Any, text: str, fields: dict[str, str], first: bytes | None) -> None:
    left, before = alone.output.count(" 499 "), alone.engine("fake")
    connection = begin(alone, body := body_of(wav(text), model="fake", behaviour="slow", **fields))
    connection.sendall(body)
    alone.wait_for_engine("fake", running=1)
    answer = b""
    while first is not None and first not in answer:
        answer += connection.recv(65536)
    connection.close()
    after = alone.wait_for_engine("fake", running=0)
    assert (after["aborted"] - before["aborted"], after["finished"] - before["finished"]) == (1, 0)
    assert after["tokens"] - before["tokens"] < len(text)
    alone.wait_for(rf"(?s)( 499 .*){{{left + 1}}}")
    assert metric(alone, "asr_audio_seconds_held") == 0
    assert alone.post(("model", "fake"), ("file", wav("next"))).json()["text"] == "next"


def test_before_the_model_has_begun(server: Any, wav: Any) -> None:
    """One more request than the engine runs at once; and all the while /health and /ready are answered."""
    before = server.engine("fake")
    body = body_of(wav(LONG[:300]), model="fake", behaviour="slow")
    callers = [begin(server, body) for _ in range(SLOTS + 1)]
    for connection in callers[:-1]:
        connection.sendall(body)
    server.wait_for_engine("fake", running=SLOTS, queued=0)
    callers[-1].sendall(body)
    server.wait_for_engine("fake", running=SLOTS, queued=1)
    assert server.http.get("/ready").status_code == 200
    callers[-1].close()
    after = server.wait_for_engine("fake", running=SLOTS, queued=0)
    assert after["aborted"] - before["aborted"] == 1
    for connection in callers[:-1]:
        connection.close()
    after = server.wait_for_engine("fake", running=0)
    assert (after["aborted"] - before["aborted"], after["finished"] - before["finished"]) == (SLOTS + 1, 0)


def test_while_it_uploads(alone: Any, wav: Any) -> None:
    left, before = alone.output.count(" 499 "), alone.engine("fake")
    connection = begin(alone, body := body_of(wav(LONG), model="fake"))
    connection.sendall(body[:1_000_000])
    wait_for_metric(alone, "asr_upload_bytes_held", lambda held: held == len(body))
    connection.close()
    alone.wait_for(rf"(?s)( 499 .*){{{left + 1}}}")
    assert metric(alone, "asr_upload_bytes_held") == 0
    assert alone.engine("fake") == before


def test_while_it_is_decoded(alone: Any, wav: Any) -> None:
    """The decoding stands still, as another request has most of the room, when its client leaves."""
    left = alone.output.count(" 499 ")
    running = begin(alone, body := body_of(wav(LONG[:500]), model="fake", behaviour="slow"))
    running.sendall(body)
    wait_for_metric(alone, "asr_audio_seconds_held", lambda held: held == 40.03)
    decoding = begin(alone, body := body_of(wav(LONG[:400]), model="fake"))
    decoding.sendall(body)
    wait_for_metric(alone, "asr_audio_seconds_held", lambda held: held > 55)
    decoding.close()
    wait_for_metric(alone, "asr_audio_seconds_held", lambda held: held == 40.03)
    running.close()
    alone.wait_for_engine("fake", running=0)
    alone.wait_for(rf"(?s)( 499 .*){{{left + 2}}}")
    wait_for_metric(alone, "asr_audio_seconds_held", lambda held: held == 0)
    # One more than there are threads that decode.
    texts = [alone.post(("model", "fake"), ("file", wav("next"))).json()["text"] for _ in range(5)]
    assert texts == ["next"] * 5
