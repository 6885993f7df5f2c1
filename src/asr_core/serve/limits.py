"""Uploads bounded while they arrive, and refusals that reach a client which is still sending."""

from __future__ import annotations

import asyncio
import contextlib

from attrs import define
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asr_core.errors import UploadTooLargeError
from asr_core.serve.traffic import Traffic
from asr_core.types import UploadLimits

FORM_ROOM = 2 * 1024 * 1024
"""Bytes a body may have beyond its file: the other fields and the part headers."""

DISCARD_BYTES = 256 * 1024 * 1024
DISCARD_S = 10.0
"""How much of a refused upload is read and thrown away. Closing at once would reset the connection, and a client that
sends before it listens would see a broken pipe in place of the answer."""


def too_large(limits: UploadLimits, count: int) -> UploadTooLargeError:
    """The refusal in OpenAI's words."""
    return UploadTooLargeError(f"Maximum content size limit ({limits.max_bytes}) exceeded ({count} bytes read)")


class BodyLimit:
    """Middleware: reading a body that is too large raises UploadTooLargeError, early if its length is announced."""

    def __init__(self, app: ASGIApp, limits: UploadLimits, traffic: Traffic) -> None:
        self.app = app
        self.limits = limits
        self.traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        body = _Body(self.limits, self.traffic, receive, send, int(announced) if announced.isdecimal() else 0)
        await self.app(scope, body.receive, body.send)


@define(eq=False)
class _Body:
    """One request's body on its way in."""

    limits: UploadLimits
    traffic: Traffic
    source: Receive
    target: Send
    announced: int
    read: int = 0
    ended: bool = False

    async def receive(self) -> Message:
        self._check(self.announced)
        message = await self._next()
        self._check(self.read)
        return message

    async def send(self, message: Message) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and not self.ended:
            await self.target({**message, "more_body": True})
            await self._discard()
            message = {"type": "http.response.body", "body": b""}
        await self.target(message)

    async def _next(self) -> Message:
        message = await self.source()
        self.read += len(message.get("body", b""))
        self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def _discard(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with self.traffic.request(), asyncio.timeout(DISCARD_S):
                while not self.ended and self.read < DISCARD_BYTES:
                    await self._next()

    def _check(self, count: int) -> None:
        if count > self.limits.max_bytes + FORM_ROOM:
            raise too_large(self.limits, count)
