"""A server on loopback keeps what every engine must, and whatever becomes of it is a typed error."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from asr_core import ModelCard
from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EngineStatistics, Finished
from asr_core.errors import DeadlineError, EngineError, OverloadedError
from asr_core.plugins import Plugins
from asr_core.testing import remote_engine
from asr_core.testing.distributions import write_distribution
from asr_core.testing.engine_conformance import (
    PATIENCE,
    EngineConformance,
    agree,
    ask,
    ask_slowly,
    collect,
    finish,
    ids_of,
    leave,
    outcome,
)
from asr_core.testing.remote_engine import CARD, Handler, RemoteEngine, serving
from asr_core.testing.rule_model import rows_of
from asr_core.types import Checkpoint, LoadedModel, Weights


class TestRemoteEngine(EngineConformance):
    card = CARD
    takes = 24

    @pytest.fixture
    @classmethod
    def engine(cls) -> Iterator[RemoteEngine]:
        with serving() as address:
            engine = RemoteEngine(*address, takes=cls.takes)
            yield engine
            engine.close()


def event(count: int, reason: str | None = None) -> bytes:
    """What the server says when it has generated ``count`` tokens 1."""
    data = {"output_token_logprobs": [(-0.5, 1)] * count, "inspected": (), "finish_reason": reason}
    return f"data: {json.dumps(data)}\n\n".encode()


class Canned(BaseHTTPRequestHandler):
    """Says its pieces, whatever it is asked; ``None`` waits until the client has gone."""

    pieces: tuple[bytes | None, ...]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        for piece in self.pieces:
            if piece is None:
                self.rfile.read(1)
            else:
                self.wfile.write(piece)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        return


OK = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@contextmanager
def engine_for(*pieces: bytes | None, silence: float = PATIENCE) -> Iterator[RemoteEngine]:
    with serving(type("Said", (Canned,), {"pieces": pieces})) as address:
        engine = RemoteEngine(*address, silence=silence)
        yield engine
        engine.close()


@pytest.mark.parametrize(
    ("pieces", "tokens", "message"),
    [
        ((OK, event(1), event(2)), 2, "before its end"),
        ((OK, event(1), event(2)[:30]), 1, "JSONDecodeError"),
        ((OK, b"data: {}\n\n"), 0, "KeyError"),
        ((OK, event(1), event(1, "abort")), 1, "abort"),
        ((OK, b'data: {"error": {"message": "out of memory"}}\n\n'), 0, "out of memory"),
        ((b"HTTP/1.0 503 Busy\r\n\r\nno room",), 0, "503: b'no room'"),
        ((b"what?\r\n",), 0, "BadStatusLine"),
        ((), 0, "RemoteDisconnected"),
    ],
)
def test_a_server_that_breaks_off_is_an_engine_error(pieces: tuple[bytes, ...], tokens: int, message: str) -> None:
    with engine_for(*pieces) as engine:
        items, error = finish(outcome(engine, ask()))
        assert type(error) is EngineError
        assert message in str(error)
        assert ids_of(items) == [1] * tokens
        assert engine.statistics() == EngineStatistics(failed=1, tokens=tokens)


def test_a_server_that_falls_silent_is_an_engine_error() -> None:
    with engine_for(OK, event(1), None, silence=0.2) as engine:
        items, error = finish(outcome(engine, ask()))
        assert (ids_of(items), type(error)) == ([1], EngineError)
        assert "timed out" in str(error)


def test_a_deadline_holds_while_the_server_is_silent() -> None:
    with engine_for(OK, event(1), None) as engine:
        items, error = finish(outcome(engine, ask(deadline=time.monotonic() + 0.2)))
        assert (ids_of(items), type(error)) == ([1], DeadlineError)


def test_a_deadline_holds_while_the_server_never_ends_a_line() -> None:
    class Dripping(Canned):
        def do_POST(self) -> None:
            self.wfile.write(OK + b"data: {")
            with suppress(ConnectionError):
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.01)

    with serving(Dripping) as address:
        _, error = finish(outcome(RemoteEngine(*address), ask(deadline=time.monotonic() + 0.2)))
    assert type(error) is DeadlineError


def test_closing_does_not_wait_for_a_silent_server() -> None:
    async def go(engine: RemoteEngine) -> None:
        stream = engine.generate(ask())
        await anext(stream)
        engine.close()
        with pytest.raises(OverloadedError):
            await anext(stream)

    with engine_for(OK, event(1), None) as engine:
        finish(go(engine))


def test_events_that_were_merged_lose_no_token() -> None:
    with engine_for(OK, event(2), event(2), event(5), event(6, "length"), b"data: [DONE]\n\n") as engine:
        items = finish(collect(engine, ask()))
        assert (ids_of(items), items[-1]) == ([1] * 6, Finished("length"))


def test_nobody_there_is_an_engine_error_and_shows_in_health() -> None:
    with serving() as address:
        engine = RemoteEngine(*address)
    with pytest.raises(EngineError, match="refused"):
        finish(collect(engine, ask()))
    assert "cannot be reached" in (finish(health(engine, well=False)) or "")


def test_health_is_the_servers_and_comes_back() -> None:
    class Moody(Canned):
        status = 503

        def do_GET(self) -> None:
            self.send_response(self.status)
            self.end_headers()

    with serving(Moody) as address:
        engine = RemoteEngine(*address)
        assert "503" in (finish(health(engine, well=False)) or "")
        Moody.status = 200
        assert finish(health(engine, well=True)) is None


async def health(engine: RemoteEngine, *, well: bool) -> str | None:
    while ((trouble := engine.health()) is None) != well:
        await asyncio.sleep(0.01)
    return trouble


def test_a_stream_that_is_left_ends_on_the_server_too() -> None:
    gone = threading.Event()

    class Watched(Handler):
        def do_POST(self) -> None:  # noqa: N802 (what http.server calls)
            super().do_POST()
            gone.set()

    async def go(engine: RemoteEngine) -> None:
        stream = engine.generate(ask_slowly())
        await anext(stream)
        await leave(stream)
        assert await asyncio.to_thread(gone.wait, PATIENCE)

    with serving(Watched) as address:
        finish(go(RemoteEngine(*address)))


def test_more_rows_than_json_should_carry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_engine, "MAX_NUMBERS", 6)
    with serving() as address:
        engine = RemoteEngine(*address)
        agree(finish(collect(engine, request := ask(rows_of(1, 2, 3)))), request)
        with pytest.raises(EngineError, match="8 numbers of encoder rows"):
            finish(collect(engine, ask(rows_of(1, 2, 3, 4))))


def test_it_is_registered_like_any_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_distribution(tmp_path, "asr-remote", {}, {"remote": "asr_core.testing.remote_engine"})
    monkeypatch.syspath_prepend(tmp_path)
    card = Plugins.discover(allow=["asr-remote"], strict=True).engine("remote-stub")
    model = LoadedModel(ModelCard("any"), Checkpoint("any", "any", path=None), None, Weights(), "cpu", "float32")
    compute = Compute()
    with serving() as (host, port):
        monkeypatch.setenv("ASR_REMOTE_ENGINE", f"{host}:{port}")
        agree(finish(collect(card.create(model, compute), request := ask())), request)
    compute.close()
