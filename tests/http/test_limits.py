"""Whatever a caller asks too much of: the status, the layer that refused, and the option that sets its limit."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import re
import string
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from attrs import evolve
from starlette.types import Message

from asr_core import audio
from asr_core.engines.compute import Compute
from asr_core.engines.torch import EngineLimits, TorchEngine
from asr_core.errors import BusyError
from asr_core.serve import create_app
from asr_core.serve.decoding import Decoder, Sound
from asr_core.serve.traffic import Traffic
from asr_core.testing.fake import ScriptedDecoder
from asr_core.testing.raw_http import begin, body_of, finish, rest
from asr_core.types import ServerLimits, UploadLimits

LETTERS = "".join(random.Random(7).choices(string.ascii_lowercase, k=480))


def seconds_of(count: int) -> str:
    """Nearly so many seconds of sound, which say nothing twice in a row."""
    return LETTERS[: 12 * count]


SECOND = seconds_of(1)
"""Text of 0.96 s."""

BOTH = 400_000 + 2 * 1024 * 1024
"""The least --max-total-bytes for --max-bytes 400000."""


@pytest.fixture(scope="module")
def tight(start: Callable[..., Any]) -> Any:
    """A server with room for one large request."""
    return start(
        *("--model", "fake", "--max-bytes", "400000", "--max-total-bytes", str(BOTH), "--max-wait", "0.1"),
        *("--min-seconds", "0.5", "--max-seconds", "10", "--max-total-seconds", "10"),
    )


@pytest.fixture(scope="module")
def hasty(start: Callable[..., Any]) -> Any:
    """A server without patience."""
    return start("--model", "fake", "--request-timeout", "2", "--upload-timeout", "0.5", "--idle-timeout", "0.5")


def error_of(answer: httpx.Response, status: int, layer: str, option: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert list(error) == ["message", "type", "param", "code", "x_asr"]
    assert error["x_asr"] == {"layer": layer}
    assert error["message"].endswith(f" (set by --{option})")
    assert answer.headers.get("retry-after") == ("1" if status in (429, 503) else None)
    return error


def test_bytes_of_one_file_in_openais_words(tight: Any) -> None:
    answer = tight.post(("model", "fake"), ("file", bytes(400_001)))
    assert answer.status_code == 413
    assert answer.json()["error"]["message"] == "Maximum content size limit (400000) exceeded (400001 bytes read)"


@pytest.mark.parametrize(("seconds", "option"), [(11, "max-seconds"), (0, "min-seconds")])
def test_seconds_of_one_file(tight: Any, wav: Any, seconds: int, option: str) -> None:
    file = wav(seconds_of(seconds) or "x")
    error = error_of(tight.post(("model", "fake"), ("file", file)), 400, "upload_limits", option)
    assert (error["type"], error["param"]) == ("invalid_request_error", "file")


def test_bytes_of_all_uploads_together(tight: Any, wav: Any) -> None:
    small, large = wav(SECOND), wav(seconds_of(8))
    uploading = begin(tight, bytes(BOTH - 100_000))
    error = error_of(tight.post(("model", "fake"), ("file", large)), 429, "http", "max-total-bytes")
    assert (error["type"], error["param"], error["code"]) == ("rate_limit_error", None, "rate_limit_exceeded")
    assert tight.post(("model", "fake"), ("file", small)).json()["text"] == SECOND
    uploading.close()
    tight.wait_for(" 499 ")
    assert tight.post(("model", "fake"), ("file", large)).json()["text"] == seconds_of(8)


def test_an_upload_of_unknown_length_counts_as_it_comes(tight: Any) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(20):
            yield bytes(10_000)

    uploading = begin(tight, bytes(BOTH - 100_000))
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = tight.http.post("/v1/audio/transcriptions", content=chunks(), headers=headers)
    error_of(answer, 429, "http", "max-total-bytes")
    uploading.close()


def test_seconds_of_all_requests_together(tight: Any, wav: Any) -> None:
    running = begin(tight, body := body_of(wav(seconds_of(8)), model="fake", behaviour="slow"))
    running.sendall(body)
    tight.wait_for_engine("fake", running=1)
    error = error_of(tight.post(("model", "fake"), ("file", wav(seconds_of(4)))), 429, "audio", "max-total-seconds")
    assert error["code"] == "rate_limit_exceeded"
    assert tight.post(("model", "fake"), ("file", wav(SECOND))).json()["text"] == SECOND
    running.close()
    tight.wait_for_engine("fake", running=0)
    assert tight.post(("model", "fake"), ("file", wav(seconds_of(9)))).json()["text"] == seconds_of(9)


def test_who_waits_is_served_when_there_is_room(wav: Any) -> None:
    limits = ServerLimits(UploadLimits(max_seconds=5.0), max_total_seconds=5.0, max_wait=600.0)
    file = io.BytesIO(wav(seconds_of(4)))

    async def go() -> float:
        decoder = Decoder(limits)
        first, second = Sound(decoder), Sound(decoder)
        await first.read(file, 16_000)
        file.seek(0)
        waiting = asyncio.create_task(second.read(file, 16_000))
        while not second.held_up:
            await asyncio.sleep(0)
        first.release()
        heard = await waiting
        second.release()
        assert decoder.held == 0
        return heard.duration

    assert asyncio.run(go()) == 3.87


def test_decodes_at_once(wav: Any) -> None:
    async def go() -> None:
        decoder = Decoder(ServerLimits(max_decodes=1, max_wait=0.0))
        async with decoder.turn():
            with pytest.raises(BusyError, match="decoded, 1 at once") as caught:
                await Sound(decoder).read(io.BytesIO(wav("x")), 16_000)
        assert (caught.value.status, caught.value.setting) == (429, "max_decodes")
        assert (await Sound(decoder).read(io.BytesIO(wav("xx")), 16_000)).duration == 0.19

    asyncio.run(go())


def test_a_queue_that_is_full(fake: Any, wav: Any) -> None:
    """It is the caller's turn to wait: 429, which the openai client tries again by itself."""
    compute = Compute()
    engine = TorchEngine(ScriptedDecoder(), compute, EngineLimits(max_running=1, max_queued=0))
    app = create_app({"fake": evolve(fake.served, engine=engine, compute=compute)}, ServerLimits())

    async def go() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:
            data = {"model": "fake", "behaviour": "slow"}
            post = partial(client.post, "/v1/audio/transcriptions", data=data, files={"file": wav("abcdef")})
            return await asyncio.gather(post(), post())

    try:
        answers = sorted(asyncio.run(go()), key=lambda answer: answer.status_code)
    finally:
        engine.close()
        compute.close()
    assert [answer.status_code for answer in answers] == [200, 429]
    error = answers[1].json()["error"]
    assert (error["code"], error["x_asr"]) == ("rate_limit_exceeded", {"layer": "engine"})
    assert answers[1].headers["retry-after"] == "1"


LONG = seconds_of(40)


def test_a_request_that_takes_too_long(hasty: Any, wav: Any) -> None:
    before = hasty.engine("fake")
    answer = hasty.post(("model", "fake"), ("behaviour", "slow"), ("file", wav(LONG)))
    error = error_of(answer, 504, "server", "request-timeout")
    assert (error["type"], error["message"]) == (
        "server_error",
        "the request took longer than 2 s (set by --request-timeout)",
    )
    after = hasty.wait_for_engine("fake", running=0)
    assert (after["aborted"] - before["aborted"], after["finished"] - before["finished"]) == (1, 0)
    assert after["tokens"] - before["tokens"] < len(LONG)
    assert "ERROR" not in hasty.output


def test_a_stream_that_takes_too_long(hasty: Any, wav: Any) -> None:
    answer = hasty.post(("model", "fake"), ("behaviour", "slow"), ("stream", "true"), ("file", wav(LONG)))
    assert answer.status_code == 200
    *deltas, last = re.findall(r"data: (.*)\n\n", answer.text)
    assert deltas
    assert '"message": "the request took longer than 2 s (set by --request-timeout)"' in last
    hasty.wait_for_engine("fake", running=0)


def test_an_upload_that_stalls(hasty: Any, wav: Any) -> None:
    connection = begin(hasty, body := body_of(wav("x"), model="fake"))
    connection.sendall(body[:100])
    status, answered = finish(connection)
    error = answered["error"]
    assert (status, error["code"], error["x_asr"]) == (408, "upload_stalled", {"layer": "http"})
    assert error["message"] == "nothing of the upload arrived for 0.5 s (set by --upload-timeout)"
    assert error["type"] == "invalid_request_error"


def test_an_upload_that_drips(hasty: Any) -> None:
    connection = begin(hasty, body := body_of(bytes(1_000_000)))
    connection.sendall(body[:100])
    connection.settimeout(0.1)
    answer = b""
    while not answer:
        connection.sendall(b"-")
        with contextlib.suppress(TimeoutError):
            answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 504 ")


def test_a_client_that_does_not_read(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request ends in time, told or not."""
    monkeypatch.setattr("asr_core.serve.exchange.ANSWER_S", 0.01)
    traffic = Traffic()
    app = create_app({"fake": fake.served}, ServerLimits(request_timeout=0.05), traffic)
    scope = {"type": "http", "method": "GET", "path": "/health", "raw_path": b"/health", "headers": []}

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        await asyncio.Event().wait()

    asyncio.run(app(scope, receive, send))
    assert traffic.running == 0


def test_a_head_that_stalls_is_closed(hasty: Any) -> None:
    """Hypercorn closes such a connection without a word: there is no request yet to answer."""
    connection = hasty.connect()
    connection.sendall(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\n")
    assert rest(connection) == b""


@pytest.mark.parametrize("broken", [b"no http at all\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000])
def test_broken_http_gets_a_bare_400(hasty: Any, broken: bytes) -> None:
    """docs/limits.md says so: Hypercorn answers before there is a request, and offers no place to put a body."""
    connection = hasty.connect()
    connection.sendall(broken)
    head, _, body = rest(connection).partition(b"\r\n\r\n")
    assert re.match(rb"HTTP/1.1 4(00|31) ", head)
    assert body == b""


def test_a_limit_that_serves_nobody_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="max_total_seconds must not be less than max_seconds"):
        ServerLimits(max_total_seconds=1.0)
    with pytest.raises(ValueError, match="max_total_bytes must be at least 28311552"):
        ServerLimits(max_total_bytes=26_214_400)


def test_decoding_ends_with_whoever_waits(wav: Any) -> None:
    """Half way through a file: the one thread is free again, and the file let go of."""

    async def go() -> None:
        limits = ServerLimits(max_decodes=1)
        decoder, seen = Decoder(limits), list[float]()

        def hold(seconds: float) -> bool:
            seen.append(seconds)
            return seconds < 4.0

        file = io.BytesIO(wav(seconds_of(40)))
        reading = asyncio.create_task(audio.read(file, 16_000, executor=decoder.threads, watch=hold))
        while not seen or seen[-1] < 4.0:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        at = len(seen)
        decoder.threads.submit(file.close).result()
        assert len(seen) == at

    asyncio.run(go())
