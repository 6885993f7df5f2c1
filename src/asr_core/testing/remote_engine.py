"""An engine that is a server elsewhere, and that server: a pattern for authors, and what keeps the protocol honest.

The server generates by the rule of the conformance suite and streams it as LLM servers do: each event repeats all
tokens so far, only closing the connection aborts, and a server that hangs says nothing. A real one runs in a process of
its own; its client would differ in what :func:`_body` and :func:`_news` know of the wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from typing import Any

import numpy as np
from attrs import asdict, define, evolve

from asr_core import hookimpl
from asr_core.engines.compute import Compute
from asr_core.engines.protocol import (
    EncodedRows,
    EngineCard,
    EngineStatistics,
    Finished,
    GeneratedToken,
    GenerationRequest,
    PromptInput,
    needed_features,
)
from asr_core.errors import DeadlineError, EngineError, EngineMismatchError, OverloadedError
from asr_core.testing.rule_model import drawing, follow
from asr_core.types import Bias, Finish, Force, LoadedModel, Sampling, Suppress, ValueRule

Item = GeneratedToken | Finished | Exception | None
"""What a stream receives; None ends it without a result, after an abort."""

MAX_NUMBERS = 4_000_000
"""Numbers in the encoder rows of one request: some 20 bytes each as JSON, on both sides at once."""

RULES = {rule.__name__: rule for rule in (Suppress, Force, Bias)}
REASONS: dict[str, Finish] = {"stop": "stop", "length": "length"}


@define(eq=False)
class _Run:
    """A request on its way; whoever ends it first cuts the ``wire``, which wakes its thread."""

    request: GenerationRequest
    send: Callable[[Item], bool]
    wire: socket.socket | None = None
    ended: bool = False


class RemoteEngine:
    """A client of one server; a thread per request, so that no event loop carries it and any may close.

    ``takes`` bounds the requests at once. ``silence`` is how many seconds the server may say nothing: a scheduler that
    crashed keeps its connections open.
    """

    def __init__(self, host: str, port: int, *, takes: int = 64, silence: float = 60) -> None:
        self._host, self._port = host, port
        self._takes, self._silence = takes, silence
        self._lock = threading.RLock()
        self._runs: dict[str, _Run] = {}
        self._statistics = EngineStatistics()
        self._closed = False
        self._trouble: str | None = None
        self._look = threading.Thread()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GeneratedToken | Finished, None]:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        items: asyncio.Queue[Item] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        run = self._admit(request, lambda item: _send(loop, items, item))
        try:
            while (item := await items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
                if isinstance(item, Finished):
                    return
        finally:
            self._end(run, None)  # not by id, which may be another request's by now

    def abort(self, request_id: str) -> None:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            if run := self._runs.get(request_id):
                self._end(run, None)

    def statistics(self) -> EngineStatistics:
        """Forward passes and what waits are the server's affair."""
        with self._lock:
            return evolve(self._statistics, running=len(self._runs))

    def health(self) -> str | None:
        """What the last look at the server found; each call sends the next one off, so none waits."""
        with self._lock:
            if not self._look.is_alive():
                self._look = threading.Thread(target=self._check_server, daemon=True)
                self._look.start()
            return self._trouble

    def close(self) -> None:
        """See :class:`~asr_core.engines.protocol.Engine`."""
        with self._lock:
            self._closed = True
            for run in list(self._runs.values()):
                self._end(run, OverloadedError("the engine was closed"))

    def _connection(self) -> HTTPConnection:
        return HTTPConnection(self._host, self._port, timeout=self._silence)

    def _admit(self, request: GenerationRequest, send: Callable[[Item], bool]) -> _Run:
        if lacking := needed_features(request) - CARD.features:
            raise EngineMismatchError(f"engine {CARD.name!r} lacks {', '.join(sorted(lacking))}")
        with self._lock:
            if self._closed:
                raise OverloadedError("the engine is closed")
            if request.id in self._runs:
                raise EngineError(f"a request with id {request.id!r} is running already")
            if len(self._runs) >= self._takes:
                self._count("refused")
                raise OverloadedError(f"{self._takes} requests are running already")
            run = self._runs[request.id] = _Run(request, send)
        threading.Thread(target=self._serve, args=[run], daemon=True).start()
        return run

    def _serve(self, run: _Run) -> None:
        """The life of a request, on a thread of its own."""
        deadline, late = run.request.deadline, DeadlineError("the request ran out of time")
        left = threading.TIMEOUT_MAX if deadline is None else deadline - time.monotonic()
        # A timer beside the reading: a time-out of the socket starts anew with every byte.
        timer = threading.Timer(left, self._end, [run, late])
        timer.daemon = True
        timer.start()
        try:
            self._end(run, late if left <= 0 else self._read(run))
        except EngineError as error:
            self._end(run, error)
        except Exception as error:
            self._end(run, EngineError(f"the server failed: {type(error).__name__}: {error}"))
        timer.cancel()

    def _read(self, run: _Run) -> Finished:
        body = json.dumps(_body(run.request))
        with closing(self._connection()) as connection:
            connection.connect()
            with self._lock:
                run.wire = connection.sock
            if not run.ended:  # else nobody will cut this wire
                connection.request("POST", "/generate", body)
                with connection.getresponse() as response:
                    for item in _news(response):
                        if isinstance(item, Finished):
                            return item
                        self._deliver(run, item)
        raise EngineError("the server ended a stream before its end")

    def _deliver(self, run: _Run, token: GeneratedToken) -> None:
        with self._lock:
            if not run.ended:  # what had arrived before the wire was cut is nobody's
                self._count("tokens")
                if not run.send(token):
                    self._end(run, None)

    def _end(self, run: _Run, item: Item) -> None:
        """From any thread; the first to come has the last word."""
        with self._lock:
            if run.ended:
                return
            run.ended = True
            del self._runs[run.request.id]
            ways = {Finished: "finished", DeadlineError: "expired", type(None): "aborted"}
            self._count(ways.get(type(item), "failed"))
            if run.wire is not None:
                with suppress(OSError):
                    run.wire.shutdown(socket.SHUT_RDWR)
            run.send(item)

    def _count(self, name: str) -> None:
        self._statistics = evolve(self._statistics, **{name: getattr(self._statistics, name) + 1})

    def _check_server(self) -> None:
        try:
            with closing(self._connection()) as connection:
                connection.request("GET", "/health")
                status = connection.getresponse().status
            self._trouble = None if status == 200 else f"the server's health is {status}"
        except Exception as error:
            self._trouble = f"the server cannot be reached: {error}"


def _body(request: GenerationRequest) -> dict[str, Any]:
    """As JSON; the id, the caller and the deadline stay here."""
    rows = [part.rows for part in request.prompt if isinstance(part, EncodedRows)]
    if (numbers := sum(part.shape[0] * part.shape[1] for part in rows)) > MAX_NUMBERS:
        raise EngineError(f"{numbers} numbers of encoder rows are too many to send as JSON, {MAX_NUMBERS} at most")
    return {
        "prompt": [part if isinstance(part, tuple) else {"rows": part.rows.tolist()} for part in request.prompt],
        "rules": [
            {"rule": type(rule).__name__, **asdict(rule)} for rule in request.rules if isinstance(rule, ValueRule)
        ],
        "stop": sorted(request.stop),
        "sampling": asdict(request.sampling),
        **{name: getattr(request, name) for name in ("given", "budget", "inspect")},
    }


def _news(response: HTTPResponse) -> Iterator[GeneratedToken | Finished]:
    """What is new in each cumulative event: several tokens where the reader was slow."""
    if response.status != 200:
        raise EngineError(f"the server answered {response.status}: {response.read(500)!r}")
    seen = 0
    for event in (json.loads(line[6:]) for line in response if line.startswith(b"data: {")):
        if "error" in event:
            raise EngineError(event["error"]["message"])
        for logprob, token in event["output_token_logprobs"][seen:]:
            yield GeneratedToken(token, logprob, () if seen else tuple(event["inspected"]))
            seen += 1
        if event["finish_reason"]:
            yield Finished(REASONS[event["finish_reason"]])


def _send(loop: asyncio.AbstractEventLoop, items: asyncio.Queue[Item], item: Item) -> bool:
    """Whether there is still a loop in which somebody could read it."""
    try:
        loop.call_soon_threadsafe(items.put_nowait, item)
    except RuntimeError:
        return False
    return True


class Handler(BaseHTTPRequestHandler):
    """The server: a thread per connection, and one connection per request."""

    def do_GET(self) -> None:
        """Health: to answer is to be well."""
        self._begin("text/plain")

    def do_POST(self) -> None:
        """Generate until the end, or until the other side closes the connection."""
        request = _parse(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._begin("text/event-stream")
        pairs: list[tuple[float, int]] = []
        inspected: tuple[float, ...] = ()
        with suppress(ConnectionError):
            try:
                for item in follow(request, drawing(request.sampling)):
                    if select([self.connection], [], [], 0)[0]:
                        return  # nothing more is ever sent to us, so this is the end of the stream
                    if isinstance(item, GeneratedToken):
                        pairs.append((item.logprob, item.id))
                        inspected = inspected or item.inspected
                    reason = item.reason if isinstance(item, Finished) else None
                    self._say({"output_token_logprobs": pairs, "inspected": inspected, "finish_reason": reason})
            except ValueError as error:
                self._say({"error": {"message": str(error)}})
            self.wfile.write(b"data: [DONE]\n\n")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Not at all: a test's output is its own."""

    def _begin(self, content: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content)
        self.end_headers()

    def _say(self, event: Any) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())


def _parse(body: dict[str, Any]) -> GenerationRequest:
    parts: list[PromptInput] = [
        EncodedRows(np.array(part["rows"]), b"") if isinstance(part, dict) else tuple(part) for part in body["prompt"]
    ]
    return GenerationRequest(
        id="",
        prompt=tuple(parts),
        rules=tuple(RULES[rule.pop("rule")](**rule) for rule in body["rules"]),
        stop=frozenset(body["stop"]),
        sampling=Sampling(**body["sampling"]),
        **{name: body[name] for name in ("given", "budget", "inspect")},
    )


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # five by default: the sixth of a crowd would wait a second
    daemon_threads = True


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler] = Handler) -> Iterator[tuple[str, int]]:
    """The address of a server on loopback that is gone afterwards."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield "127.0.0.1", server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def connect(model: LoadedModel, compute: Compute) -> RemoteEngine:
    """The server at ``host:port`` of the environment variable ASR_REMOTE_ENGINE, which has the weights of ``model``."""
    host, _, port = os.environ.get("ASR_REMOTE_ENGINE", "127.0.0.1:30000").rpartition(":")
    return RemoteEngine(host, int(port))


CARD = EngineCard(
    name="remote-stub",
    summary="a server that follows the rule of the conformance suite, for tests",
    features=frozenset({"embeddings", "probes", "rules"}),
    parts=frozenset({"encoder"}),
    create=connect,
)


@hookimpl
def register_engines(register: Callable[[EngineCard], None]) -> None:
    """One engine."""
    register(CARD)
