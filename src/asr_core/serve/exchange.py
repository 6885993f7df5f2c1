"""One request and its answer: an id, a line in the access log, and an envelope whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from attrs import define, field
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asr_core.errors import AsrError, DeadlineError, OverloadedError
from asr_core.serve.decoding import Decoder, Sound
from asr_core.serve.errors import problem_of
from asr_core.serve.events import MEDIA_TYPE, Events, frame
from asr_core.serve.logs import FACTS
from asr_core.serve.metrics import Metrics
from asr_core.serve.traffic import Traffic
from asr_core.types import Transcript

CLIENT_LEFT = 499
"""Status, in the log and the metrics, of a request whose client did not wait; nothing is sent."""

ANSWER_S = 10.0
"""What sending a refusal may take: a client that does not read must not keep a request that has ended."""

VISIBLE = bytes(range(0x21, 0x7F))
"""Bytes of a path that stand in the log as they are; the others are percent-encoded."""

access = logging.getLogger("asr_core.access")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ExchangeMiddleware:
    """Counts the request, ends it in time, and answers what nothing inside answered.

    Inside, ``request.state.exchange`` is its :class:`Exchange`.
    """

    def __init__(self, app: ASGIApp, traffic: Traffic, decoder: Decoder, metrics: Metrics) -> None:
        self.app = app
        self.traffic = traffic
        self.decoder = decoder
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(_request_id(scope), send, Sound(self.decoder))
        scope.setdefault("state", {}).update(request_id=exchange.id, exchange=exchange)
        try:
            async with self.traffic.request(self.decoder.limits.request_timeout):
                await self._run(scope, receive, exchange)
        except TimeoutError:
            await exchange.fail(self._too_late(), scope)
        finally:
            exchange.sound.release()
            ended = time.monotonic()
            exchange.log(scope, ended)
            self.metrics.count(exchange, scope, ended)

    async def _run(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        try:
            await self.app(scope, receive, exchange.send)
        except ClientDisconnect:
            # Hypercorn says of every answer that has been sent that its client is gone.
            if not exchange.answered:
                exchange.status = CLIENT_LEFT
        except Exception as error:
            await exchange.fail(error, scope)

    def _too_late(self) -> AsrError:
        if self.traffic.expired:
            return OverloadedError("the server shut down before this was done", layer="server")
        seconds = self.decoder.limits.request_timeout
        return DeadlineError(f"the request took longer than {seconds:g} s", layer="server", setting="request_timeout")


@define(eq=False)
class Exchange:
    """What is known of a request and its answer so far; times on the monotonic clock."""

    id: str
    target: Send
    sound: Sound
    model: str | None = None
    """The id under which it is served; whoever finds it says so here."""
    status: int = 0
    answered: bool = False
    events: bool = False
    transcript: Transcript | None = None
    began: float = field(factory=time.monotonic)
    first_event: float | None = None

    async def send(self, message: Message) -> None:
        """Send on, with the id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            self.events = headers.get("content-type", "").startswith(MEDIA_TYPE)
        else:
            self.answered = not message.get("more_body", False)
            if self.events and self.first_event is None:
                self.first_event = time.monotonic()
        await self.target(message)

    def heard(self, transcript: Transcript) -> Transcript:
        """Note what became of it."""
        self.transcript = transcript
        return transcript

    async def watched(self, events: Events) -> AsyncGenerator[Any, None]:
        """``events``, the transcript among them noted; closing this closes them."""
        async with aclosing(events):
            async for event in events:
                yield self.heard(event) if isinstance(event, Transcript) else event

    async def fail(self, error: Exception, scope: Scope) -> None:
        """Tell the client, as far as it can still be told."""
        problem = problem_of(error, Request(scope))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                if not self.status:
                    await problem.response()(scope, _nothing, self.send)
                elif self.events:
                    await self.send({"type": "http.response.body", "body": frame(problem.body)})
        # Half of any other answer cannot be mended; the connection is closed on it, which the client notices.

    def log(self, scope: Scope, ended: float) -> None:
        """One line: nothing of what was sent, said or recognised."""
        facts = {
            "method": scope["method"],
            # The raw path has no query, but over HTTP/2 what a terminal would obey.
            "path": quote(scope.get("raw_path", b""), safe=VISIBLE),
            "status": self.status,
            "ms": round(1000 * (ended - self.began)),
            "request_id": self.id,
            "model": self.model,
            "audio_seconds": round(self.sound.seconds, 2),
        }
        line = "%(method)s %(path)s %(status)d %(ms)d ms %(request_id)s model=%(model)s audio=%(audio_seconds)s"
        access.info(line, facts, extra={FACTS: facts})


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _request_id(scope: Scope) -> str:
    """The caller's own id if it is harmless in a log and a header."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{uuid4().hex}"
