"""Thirty-two callers at once, honest, mistaken and leaving: every request is answered rightly, and nothing stays."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from asr_core.testing.raw_http import CONTENT_TYPE, body_of
from asr_core.testing.server import PATIENCE_S, TRANSCRIPTIONS

CALLERS = 32
REQUESTS = 240

TEXTS = [f"caller {number} said this" for number in range(CALLERS)]


class Caller:
    """One of them; each method makes one request and returns how it ended: a status, or "left"."""

    def __init__(self, server: Any, wav: Any, client: httpx.AsyncClient, number: int) -> None:
        self.address = server.address
        self.client = client
        self.text = TEXTS[number]
        self.sound = wav(self.text)

    async def post(self, file: bytes, **fields: str) -> httpx.Response:
        data = {"model": "fake", **fields}
        return await self.client.post(TRANSCRIPTIONS, data=data, files={"file": file})

    async def plain(self) -> str:
        answer = await self.post(self.sound)
        assert answer.json()["text"] == self.text
        return str(answer.status_code)

    async def verbose(self) -> str:
        answer = await self.post(self.sound, response_format="verbose_json")
        assert answer.json()["text"] == self.text
        return str(answer.status_code)

    async def stream(self) -> str:
        answer = await self.post(self.sound, stream="true")
        events = [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]
        *deltas, done = events
        assert "".join(event["delta"] for event in deltas) == done["text"] == self.text
        return str(answer.status_code)

    async def mistaken(self) -> str:
        answer = await self.post(self.sound, temperature="hot")
        assert answer.json()["error"]["param"] == "temperature"
        return str(answer.status_code)

    async def no_model(self) -> str:
        answer = await self.post(self.sound, model="nobody")
        assert answer.json()["error"]["code"] == "model_not_found"
        return str(answer.status_code)

    async def no_audio(self) -> str:
        answer = await self.post(os.urandom(3000))
        assert answer.json()["error"]["param"] == "file"
        return str(answer.status_code)

    async def broken_model(self) -> str:
        answer = await self.post(self.sound, behaviour="raise")
        assert answer.json()["error"]["x_asr"] == {"layer": "engine"}
        return str(answer.status_code)

    async def leaves_while_it_uploads(self) -> str:
        body = body_of(self.sound, model="fake")
        return await self._leave(len(body), body[: len(body) // 2])

    async def leaves_at_once(self) -> str:
        body = body_of(self.sound, model="fake", behaviour="slow")
        return await self._leave(len(body), body)

    async def leaves_a_stream(self) -> str:
        data = {"model": "fake", "behaviour": "slow", "stream": "true"}
        async with self.client.stream("POST", TRANSCRIPTIONS, data=data, files={"file": self.sound}) as answer:
            async for text in answer.aiter_text():
                assert "transcript.text.delta" in text
                return "left"
        raise AssertionError("a stream without events")

    async def _leave(self, length: int, body: bytes) -> str:
        _, writer = await asyncio.open_connection(*self.address)
        head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: {CONTENT_TYPE}\r\n"
        writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        return "left"


KINDS: list[tuple[Callable[[Caller], Awaitable[str]], str]] = [
    (Caller.plain, "200"),
    (Caller.plain, "200"),
    (Caller.stream, "200"),
    (Caller.stream, "200"),
    (Caller.verbose, "200"),
    (Caller.mistaken, "400"),
    (Caller.no_model, "404"),
    (Caller.no_audio, "400"),
    (Caller.broken_model, "500"),
    (Caller.leaves_while_it_uploads, "left"),
    (Caller.leaves_at_once, "left"),
    (Caller.leaves_a_stream, "left"),
]


@pytest.fixture(scope="module")
def alone(start: Callable[..., Any]) -> Any:
    """A server nobody else asks; Hypercorn closes a connection that its client has closed when it has been idle.

    Busy callers on a slow machine take a second and a half from their connection to its first byte.
    """
    return start("--model", "fake", "--idle-timeout", "5")


def threads(server: Any) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Threads")))


def files(server: Any) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def counted(server: Any) -> Counter[str]:
    """Requests to the route by status, as the server counts them."""
    pattern = rf'asr_requests_total{{model="[^"]*",route="{TRANSCRIPTIONS}",status="(\d+)"}} (\S+)'
    found = Counter[str]()
    for status, count in re.findall(pattern, server.http.get("/metrics").text):
        found[status] += int(float(count))
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


async def crowd(server: Any, wav: Any, kinds: list[Any]) -> Counter[str]:
    """All kinds, in order, by as many callers at once; how they ended."""
    waiting, ended = iter(kinds), Counter[str]()

    async def call(number: int) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
            caller = Caller(server, wav, client, number)
            for ask, expected in waiting:
                assert await ask(caller) == expected
                ended[expected] += 1

    async def look() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            while True:
                assert (await client.get("/health")).status_code == 200
                await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(call(number))
    assert not looking.done()
    looking.cancel()
    return ended


def test_a_crowd(alone: Any, wav: Any) -> None:
    kinds = KINDS * (REQUESTS // len(KINDS))
    random.Random(0).shuffle(kinds)
    files_at_rest = files(alone)
    # Every pool of threads has what it will ever have after the first crowd.
    asyncio.run(crowd(alone, wav, kinds))
    engine = alone.wait_for_engine("fake", running=0, queued=0)
    wait_until(lambda: files(alone) <= files_at_rest)
    before, (threads_before, files_before) = counted(alone), (threads(alone), files(alone))

    ended = asyncio.run(crowd(alone, wav, kinds))

    assert ended == Counter(expected for _, expected in kinds)
    after = alone.wait_for_engine("fake", running=0, queued=0)
    wait_until(lambda: (counted(alone) - before).total() >= REQUESTS)
    total = counted(alone) - before
    assert total.total() == REQUESTS
    # Who leaves as the answer is ready may have been answered.
    left = total["499"] + total["200"] - ended["200"]
    assert left == ended["left"]
    assert {status: total[status] for status in ("400", "404", "500")} == {
        status: ended[status] for status in ("400", "404", "500")
    }
    assert set(total) <= {"200", "400", "404", "499", "500"}
    grown = {name: after[name] - engine[name] for name in ("finished", "aborted", "failed", "expired", "refused")}
    assert (grown["failed"], grown["expired"], grown["refused"]) == (ended["500"], 0, 0)
    assert ended["200"] <= grown["finished"] <= total["200"]
    assert threads(alone) <= threads_before
    wait_until(lambda: files(alone) <= files_before)
    text = alone.http.get("/metrics").text
    assert re.search(r"^asr_audio_seconds_held 0.0$", text, re.MULTILINE)
    assert re.search(r"^asr_upload_bytes_held 0.0$", text, re.MULTILINE)
    assert alone.http.get("/ready").status_code == 200
