"""The multipart body of an upload: read whole, or refused in our own shape."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from asr_core.errors import InvalidRequestError

FIELD_BYTES = 1024 * 1024
MAX_FIELDS = 64
MAX_FILES = 8
"""More than any route takes, so that a wrong one can still be named."""

FIELD_SHOWN = 64
"""Characters of a caller's own words that are repeated in a refusal."""


@asynccontextmanager
async def read_form(request: Request) -> AsyncIterator[FormData]:
    """The parts of the body, large files on disk; closed at the end.

    Raises:
        InvalidRequestError: it is not multipart, or damaged, or has too many or too large fields.
        UploadTooLargeError: see :class:`~asr_core.serve.limits.BodyLimit`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise InvalidRequestError(f"the body must be multipart/form-data, not {kind[:FIELD_SHOWN] or 'untyped'}")
    try:
        form = await _WholeForm(request).parse()
    except MultiPartException as error:
        raise InvalidRequestError(error.message) from error
    try:
        yield form
    finally:
        await form.close()


class _WholeForm(MultiPartParser):
    """Starlette's parser, which by itself takes a body that breaks off for a shorter one."""

    def __init__(self, request: Request) -> None:
        super().__init__(
            request.headers,
            self._until_closed(request),
            max_files=MAX_FILES,
            max_fields=MAX_FIELDS,
            max_part_size=FIELD_BYTES,
        )
        self._closed = False

    def on_end(self) -> None:
        self._closed = True

    async def _until_closed(self, request: Request) -> AsyncGenerator[bytes, None]:
        async for chunk in request.stream():
            yield chunk
        if not self._closed:
            raise MultiPartException("The multipart body ends before its closing boundary.")
