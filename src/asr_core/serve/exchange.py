"""One request and its answer: an id, a line in the access log, and an envelope whatever happens."""

from __future__ import annotations

import logging
import re
import time
from uuid import uuid4

from attrs import define, field
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asr_core.errors import OverloadedError
from asr_core.serve.errors import problem_of
from asr_core.serve.events import MEDIA_TYPE, frame
from asr_core.serve.traffic import Traffic

CLIENT_LEFT = 499
"""Status in the log of a request whose client did not wait; nothing is sent."""

access = logging.getLogger("asr_core.access")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ExchangeMiddleware:
    """Counts the request in ``traffic`` and answers what nothing inside answered."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self.app = app
        self.traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(_request_id(scope), send)
        scope.setdefault("state", {})["request_id"] = exchange.id
        try:
            async with self.traffic.request():
                await self._run(scope, receive, exchange)
        except TimeoutError:
            await exchange.fail(OverloadedError("the server shut down before this was done", layer="server"), scope)
        finally:
            exchange.log(scope)

    async def _run(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        try:
            await self.app(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = CLIENT_LEFT
        except Exception as error:
            await exchange.fail(error, scope)


@define(eq=False)
class _Exchange:
    """What is known of an answer so far."""

    id: str
    target: Send
    status: int = 0
    events: bool = False
    began: float = field(factory=time.monotonic)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            self.events = headers.get("content-type", "").startswith(MEDIA_TYPE)
        await self.target(message)

    async def fail(self, error: Exception, scope: Scope) -> None:
        problem = problem_of(error, Request(scope))
        if not self.status:
            await problem.response()(scope, _nothing, self.send)
        elif self.events:
            await self.send({"type": "http.response.body", "body": frame(problem.body)})
        # Half of any other answer cannot be mended; the connection is closed on it, which the client notices.

    def log(self, scope: Scope) -> None:
        # The raw path has neither query nor line breaks.
        path = scope.get("raw_path", b"").decode("ascii", "replace")
        spent = 1000 * (time.monotonic() - self.began)
        access.info("%s %s %d %.0f ms %s", scope["method"], path, self.status, spent, self.id)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _request_id(scope: Scope) -> str:
    """The caller's own id if it is harmless in a log and a header."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{uuid4().hex}"
