"""The multipart body of an upload: read whole, or refused in our own shape."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from asr_core.errors import InvalidRequestError

FILE = "file"
"""The part that holds the sound."""

FIELD_BYTES = 1024 * 1024
MAX_FIELDS = 64
MAX_FILES = 8
"""More than any route takes, so that a wrong one can still be named."""

CHARSETS = ("utf-8", "utf8", "us-ascii", "iso-8859-1")
"""Of the text fields. Python knows others that take minutes for one field, or make text that no answer can hold."""

FIELD_SHOWN = 64
"""Characters of a caller's own words that are repeated in a refusal."""


@asynccontextmanager
async def read_form(request: Request) -> AsyncIterator[FormData]:
    """The parts of the body, large files on disk; closed at the end.

    Raises:
        InvalidRequestError: it is not multipart, not in UTF-8, damaged, or has too many or too large fields.
        UploadTooLargeError: see :class:`~asr_core.serve.limits.BodyLimit`.
    """
    _check_type(request.headers.get("content-type", ""))
    try:
        form = await _WholeForm(request).parse()
    except MultiPartException as error:
        cause = "" if error.__cause__ is None else f" {error.__cause__}"
        raise InvalidRequestError(f"{error.message}{cause}") from error
    try:
        yield form
    finally:
        await form.close()


def _check_type(header: str) -> None:
    kind = header.partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise InvalidRequestError(f"the body must be multipart/form-data, not {kind[:FIELD_SHOWN] or 'untyped'}")
    charset = parse_options_header(header)[1].get(b"charset", b"utf-8").decode("latin-1")
    if charset.lower() not in CHARSETS:
        raise InvalidRequestError(f"the form must be in UTF-8, not {charset[:FIELD_SHOWN]!r}")


class _WholeForm(MultiPartParser):
    """Starlette's parser, which by itself takes a body that breaks off for a shorter one.

    It also takes a part without a file name for text, and so spoils a file that comes without one.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(
            request.headers,
            self._until_closed(request),
            max_files=MAX_FILES,
            max_fields=MAX_FIELDS,
            max_part_size=FIELD_BYTES,
        )
        self._closed = False

    def on_headers_finished(self) -> None:
        disposition = self._current_part.content_disposition
        _, options = parse_options_header(disposition)
        if disposition and options.get(b"name") == FILE.encode() and b"filename" not in options:
            self._current_part.content_disposition = disposition + b'; filename=""'
        super().on_headers_finished()

    def on_end(self) -> None:
        self._closed = True

    async def _until_closed(self, request: Request) -> AsyncGenerator[bytes, None]:
        async for chunk in request.stream():
            yield chunk
        if not self._closed:
            raise MultiPartException("The multipart body ends before its closing boundary.")
