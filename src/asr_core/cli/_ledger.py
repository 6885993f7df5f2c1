"""Which results in an output directory are finished, and from what they were made."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import click

from asr_core.cli._names import reason

NAME = ".asr-core.jsonl"
"""The ledger's file in the output directory."""


class Ledger:
    """A line of JSON for every finished result, of which the last one counts; only ever appended to.

    A result is known by its name relative to the directory, and what it was made from by a key: a digest of the
    recording's bytes and of ``settings``, everything else that could have made it different. One process has it at a
    time, also if the one before was killed.

    Raises:
        click.ClickException: another process has it, or the directory cannot be written to.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self._seed = json.dumps(settings, sort_keys=True).encode()
        self._file = _open(directory)
        self._keys = dict(_read(self._file))

    def key(self, recording: str) -> str | None:
        """The key of ``recording`` as it is now; None of what is no regular file and can be read only once.

        Raises:
            OSError: it cannot be read.
        """
        if not os.path.isfile(recording):
            return None
        with open(recording, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(self._seed, digest_size=16)).hexdigest()

    def holds(self, result: str, recording: str) -> bool:
        """Whether ``result`` was made from ``recording`` as it is now; what cannot be read counts as changed."""
        try:
            return result in self._keys and self._keys[result] == self.key(recording)
        except OSError:
            return False

    def enter(self, result: str, key: str) -> None:
        """Note that ``result`` is there, made from what ``key`` stands for."""
        self._keys[result] = key
        self._file.write(json.dumps({"result": result, "key": key}).encode() + b"\n")

    def close(self) -> None:
        """Let others have it."""
        self._file.close()


def _open(directory: Path) -> BinaryIO:
    """The ledger of ``directory``, locked; the system unlocks it however this process ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            file = stack.enter_context(open(directory / NAME, "a+b", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stack.pop_all()
    except BlockingIOError as error:
        raise click.ClickException(f"another process writes to {directory}: wait for it, or stop it") from error
    except OSError as error:
        raise click.FileError(str(directory / NAME), reason(error)) from error
    return file


def _read(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Results with their keys; a line that was never finished is ended and counts for nothing."""
    file.seek(0)
    lines = file.read()
    if lines and not lines.endswith(b"\n"):
        file.write(b"\n")
    for line in lines.splitlines():
        try:
            entry = json.loads(line)
            yield str(entry["result"]), str(entry["key"])
        except (ValueError, TypeError, KeyError):
            continue
