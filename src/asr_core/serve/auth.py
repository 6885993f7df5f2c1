"""Keys: who shows none of them is served only what says that the server lives."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from asr_core.errors import AsrError, AuthenticationError

OPEN_PATHS = frozenset({"/health", "/ready"})
"""What balancers ask, who have no key."""


class Keys:
    """The keys of a server, held as digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def check(self, authorization: str) -> None:
        """Whether the value of an ``Authorization`` header is ``Bearer`` and one of the keys.

        Raises:
            AuthenticationError: it is not.
        """
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise AuthenticationError("a key is needed here: send it in the header 'Authorization: Bearer KEY'")
        shown = _digest(key.strip())
        # All are compared, so that the time taken tells nothing of which one it was.
        if not any([hmac.compare_digest(shown, known) for known in self._digests]):  # noqa: C419
            raise AuthenticationError("the key in the header Authorization is none of this server's")


def read_keys(path: Path) -> Keys:
    """The keys in a file, one a line; empty lines and those that begin with ``#`` do not count.

    Raises:
        AsrError: it cannot be read, or holds no key, or one that no header could carry.
    """
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise AsrError(f"the keys in {path} cannot be read: {error}") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise AsrError(f"there is no key in {path}")
    for number, line in enumerate(lines, 1):
        if line in keys and not (line.isascii() and line.isprintable() and " " not in line):
            raise AsrError(f"line {number} of {path} is no key: a key is made of printable ASCII without spaces")
    return Keys(keys)


class KeyCheck:
    """Middleware: requests without a key raise AuthenticationError before anything of them is read."""

    def __init__(self, app: ASGIApp, keys: Keys | None) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if self.keys is not None and scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            self.keys.check(Headers(scope=scope).get("authorization", ""))
        await self.app(scope, receive, send)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
