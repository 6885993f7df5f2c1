"""The bytes of an upload as one seekable window: all that FFmpeg gets to see."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias

from asr_core.audio._deadline import Deadline
from asr_core.errors import UploadTooLargeError

AudioSource: TypeAlias = bytes | BinaryIO | os.PathLike[str] | str


class Source:
    """Bytes ``start`` to ``end`` of a seekable file, itself readable and seekable from 0.

    It has neither a name nor a ``close``, so FFmpeg learns no path and cannot end a file that belongs to the caller.
    Each read checks the deadline: a demuxer that searches a large file for ever is stopped there.
    """

    def __init__(self, file: BinaryIO, start: int, end: int, deadline: Deadline) -> None:
        self._file = file
        self._start = start
        self._end = end
        self._deadline = deadline
        self._position = 0
        self._over = False

    @property
    def size(self) -> int:
        """Bytes in the window."""
        return self._end - self._start

    def read(self, count: int = -1) -> bytes:
        """Up to ``count`` bytes, fewer only at the end of the window, none once the deadline has ended it."""
        if self._over:
            # FFmpeg reads on before PyAV is asked what went wrong, and of two errors PyAV would print one.
            return b""
        self._over = True
        self._deadline.check()
        self._over = False
        left = max(0, self.size - self._position)
        self._file.seek(self._start + self._position)
        data = self._file.read(left if count < 0 else min(count, left))
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move within the window and tell where; past its end nothing is read, before its start gives -1.

        A damaged file makes FFmpeg try both, so neither may raise: -1 is how it is told that it failed.
        """
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            return -1
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Bytes from the start of the window."""
        return self._position

    def at(self, offset: int, count: int) -> bytes:
        """``count`` bytes at ``offset``, fewer only at the end of the window."""
        self.seek(offset)
        return self.read(count)

    def window(self, start: int, end: int | None = None) -> Source:
        """The part from ``start`` up to, not including, ``end``, offsets counted in this window."""
        stop = self._end if end is None else min(self._end, self._start + end)
        return Source(self._file, self._start + start, stop, self._deadline)


@contextmanager
def open_source(source: AudioSource, max_bytes: int, deadline: Deadline) -> Iterator[Source]:
    """Give ``source`` as a window over its bytes, or raise :class:`~asr_core.errors.UploadTooLargeError`.

    A path is opened here and never shown to FFmpeg; a file object is read from where it stands and left open.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        yield _bounded(io.BytesIO(source), max_bytes, deadline)
    elif isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            yield _bounded(file, max_bytes, deadline)
    else:
        yield _bounded(source, max_bytes, deadline)


def _bounded(file: BinaryIO, max_bytes: int, deadline: Deadline) -> Source:
    if not file.seekable():
        file = _spooled(file, max_bytes, deadline)
    start = file.tell()
    end = file.seek(0, os.SEEK_END)
    if end - start > max_bytes:
        raise _too_large(max_bytes, end - start)
    return Source(file, start, max(start, end), deadline)


def _spooled(file: BinaryIO, max_bytes: int, deadline: Deadline) -> BinaryIO:
    held = io.BytesIO()
    while block := file.read(65536):
        deadline.check()
        held.write(block)
        if held.tell() > max_bytes:
            raise _too_large(max_bytes, held.tell())
    held.seek(0)
    return held


def _too_large(max_bytes: int, count: int) -> UploadTooLargeError:
    return UploadTooLargeError(f"Maximum content size limit ({max_bytes}) exceeded ({count} bytes read)")
