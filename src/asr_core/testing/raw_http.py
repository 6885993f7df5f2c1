"""Uploads byte by byte, for clients that stop, stall or leave where a real client would not."""

from __future__ import annotations

import json
import socket
from typing import Any

from asr_core.testing.server import TRANSCRIPTIONS, Server

CONTENT_TYPE = "multipart/form-data; boundary=b"


def head_of(length: int, path: str = TRANSCRIPTIONS) -> bytes:
    """The head of a request whose client waits to be told that it was read."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Content-Type: {CONTENT_TYPE}",
        f"Content-Length: {length}",
        "Expect: 100-continue",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def body_of(file: bytes, **fields: str) -> bytes:
    """A form of text fields and, last, the file."""
    part = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    texts = [part % (name.encode(), b"", value.encode()) for name, value in fields.items()]
    return b"".join([*texts, part % (b"file", b'; filename="x"', file), b"--b--\r\n"])


def begin(server: Server, body: bytes) -> socket.socket:
    """A connection on which the head of an upload of ``body`` was read; nothing of the body is sent."""
    connection = server.connect()
    connection.sendall(head_of(len(body)))
    answer = connection.recv(4096)
    if not answer.startswith(b"HTTP/1.1 100 "):
        raise AssertionError(answer)
    return connection


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    answer = b""
    while data := connection.recv(65536):
        answer += data
    return answer


def finish(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and JSON body of the answer, after which the server closes the connection."""
    head, _, body = rest(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)
