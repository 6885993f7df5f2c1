"""What is to be transcribed: files as they were named, and what directories hold."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from attrs import Factory, define, frozen

from asr_core.cli._names import reason, shown

logger = logging.getLogger(__name__)


@frozen
class Recording:
    """A file of ``size`` bytes to transcribe: ``path`` opens it, ``place`` is where it belongs below the output."""

    path: str
    place: Path
    size: int


@define(eq=False)
class Search:
    """What was found: ``recordings`` in order, ``others`` that hold no audio, ``failures`` to look, a line each."""

    recordings: list[Recording] = Factory(list)
    others: list[Path] = Factory(list)
    failures: list[str] = Factory(list)
    _entered: set[str] = Factory(set)

    @classmethod
    def through(cls, paths: Iterable[str], output: Path | None) -> Search:
        """Take every file of ``paths`` and walk every directory, sorted, without hidden files and ``output``."""
        search = cls()
        if output is not None:
            search._entered.add(os.path.realpath(output))
        for path in paths:
            search._named(path)
        return search

    def _named(self, path: str) -> None:
        try:
            status = os.stat(path)
        except OSError as error:
            self.failures.append(f"{shown(path)}: {reason(error)}")
            return
        if stat.S_ISDIR(status.st_mode):
            self._directory(Path(path), Path())
        else:
            self.recordings.append(Recording(path, Path(Path(path).name), status.st_size))

    def _directory(self, directory: Path, place: Path) -> None:
        self._entered.add(os.path.realpath(directory))
        try:
            entries = sorted(directory.iterdir())
        except OSError as error:
            self.failures.append(f"{shown(directory)}: {reason(error)}")
            return
        for entry in entries:
            if not entry.name.startswith("."):
                self._entry(entry, place / entry.name)

    def _entry(self, path: Path, place: Path) -> None:
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                # Links may lead back up; what several of them lead to is read once.
                if os.path.realpath(path) not in self._entered:
                    self._directory(path, place)
            elif stat.S_ISREG(status.st_mode) and _is_recording(path):
                self.recordings.append(Recording(str(path), place, status.st_size))
            else:
                logger.info("%s: not audio", shown(path))
                self.others.append(path)
        except OSError as error:
            self.failures.append(f"{shown(path)}: {reason(error)}")


def _is_recording(path: Path) -> bool:
    """By content; what only bears the name of audio is damaged, and its failure is to be told."""
    from asr_core.audio import SUPPORTED_FORMATS, is_audio

    return path.suffix.lower().removeprefix(".") in SUPPORTED_FORMATS or is_audio(path)
