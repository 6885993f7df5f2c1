"""How much callers may ask for at once; uploads are held to it while they arrive."""

from __future__ import annotations

import asyncio
import contextlib

from attrs import define
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asr_core.errors import BusyError, UploadStalledError, UploadTooLargeError
from asr_core.serve.traffic import Traffic
from asr_core.types import ServerLimits, UploadLimits

DISCARD_BYTES = 256 * 1024 * 1024
DISCARD_S = 10.0
"""How much of a refused upload is read and thrown away. Closing at once would reset the connection, and a client that
sends before it listens would see a broken pipe in place of the answer."""


def too_large(limits: UploadLimits, count: int) -> UploadTooLargeError:
    """The refusal in OpenAI's words."""
    return UploadTooLargeError(f"Maximum content size limit ({limits.max_bytes}) exceeded ({count} bytes read)")


@define(eq=False)
class Uploads:
    """The bodies of one server; ``held`` bytes of them are here, or were announced."""

    limits: ServerLimits
    held: int = 0

    def grow(self, more: int) -> None:
        """Let one body have ``more`` bytes.

        Raises:
            BusyError: all together would have too many.
        """
        most = self.limits.max_total_bytes
        if more > 0 and self.held + more > most:
            raise BusyError(
                f"uploads in progress fill the {most} bytes there are", layer="http", setting="max_total_bytes"
            )
        self.held += more


class BodyLimit:
    """Middleware: reading a body that is too large, one too many or too slow raises.

    UploadTooLargeError and BusyError come early if the length is announced; else UploadStalledError.
    """

    def __init__(self, app: ASGIApp, uploads: Uploads, traffic: Traffic) -> None:
        self.app = app
        self.uploads = uploads
        self.traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        length = int(announced) if announced.isdecimal() else 0
        body = _Body(self.uploads, self.traffic, receive, send, length)
        try:
            await self.app(scope, body.receive, body.send)
        finally:
            body.release()


@define(eq=False)
class _Body:
    """One request's body on its way in."""

    uploads: Uploads
    traffic: Traffic
    source: Receive
    target: Send
    announced: int
    read: int = 0
    held: int = 0
    ended: bool = False

    async def receive(self) -> Message:
        self._hold(self.announced)
        message = await self._next()
        self._hold(self.read)
        return message

    async def send(self, message: Message) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and not self.ended:
            self.release()
            await self.target({**message, "more_body": True})
            await self._discard()
            message = {"type": "http.response.body", "body": b""}
        await self.target(message)

    def release(self) -> None:
        """Forget what was read."""
        self.uploads.grow(-self.held)
        self.held = 0

    def _hold(self, count: int) -> None:
        limits = self.uploads.limits.upload
        if count > limits.body_bytes:
            raise too_large(limits, count)
        if count > self.held:
            self.uploads.grow(count - self.held)
            self.held = count

    async def _next(self) -> Message:
        # Once the body is here, what comes next is that the client leaves.
        patience = None if self.ended else self.uploads.limits.upload_timeout
        try:
            async with asyncio.timeout(patience):
                message = await self.source()
        except TimeoutError as error:
            self.ended = True
            raise UploadStalledError(
                f"nothing of the upload arrived for {patience:g} s", setting="upload_timeout"
            ) from error
        self.read += len(message.get("body", b""))
        self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def _discard(self) -> None:
        with contextlib.suppress(TimeoutError, UploadStalledError):
            async with self.traffic.request(DISCARD_S):
                while not self.ended and self.read < DISCARD_BYTES:
                    await self._next()
