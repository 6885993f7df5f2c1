"""Where transcripts go: to the terminal one after another, or to a file each in a directory."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import click
from attrs import frozen

from asr_core.cli._ledger import Ledger
from asr_core.cli._names import shown
from asr_core.cli._search import Recording
from asr_core.formats import FORMATS, TIMED, as_dict
from asr_core.types import Transcript

_SUFFIXES = {"text": "txt"}
_PART = ".asr-core.part"
"""What a result is called until it is whole: hidden, and of a fixed name, so that a killed run leaves one at most."""

Write = Callable[[Transcript], None]


class Output(Protocol):
    """Takes the transcripts of recordings."""

    def has(self, recording: Recording) -> bool:
        """Whether the transcript of ``recording`` is there already."""

    def begin(self, recording: Recording) -> Write:
        """Look at ``recording`` before it is transcribed, and give what takes its transcript, which may raise OSError.

        Raises:
            OSError: ``recording`` cannot be read.
        """


@frozen
class Terminal:
    """Standard output, with headers between the texts of ``several`` files."""

    format: str
    several: bool

    def has(self, recording: Recording) -> bool:
        """What was printed is not remembered."""
        return False

    def begin(self, recording: Recording) -> Write:
        """Nothing to look at."""
        return partial(self._write, recording)

    def _write(self, recording: Recording, transcript: Transcript) -> None:
        header = f"==> {shown(recording.path)} <==\n" if self.several and self.format == "text" else ""
        click.echo(header + _render(self.format, recording, transcript), nl=False)


@frozen
class Folder:
    """A file for each recording at its place below ``directory``; ``ledger`` knows which are finished."""

    format: str
    directory: Path
    ledger: Ledger

    def has(self, recording: Recording) -> bool:
        """Whether the file is there, and was made from ``recording`` as it is now."""
        result = result_name(recording, self.format)
        return (self.directory / result).is_file() and self.ledger.holds(result.as_posix(), recording.path)

    def begin(self, recording: Recording) -> Write:
        """Take the key before the sound is read: who changes the file meanwhile has it transcribed again next time."""
        return partial(self._write, recording, self.ledger.key(recording.path))

    def _write(self, recording: Recording, key: str | None, transcript: Transcript) -> None:
        result = result_name(recording, self.format)
        _replace(self.directory / result, _render(self.format, recording, transcript))
        if key is not None:
            self.ledger.enter(result.as_posix(), key)


def result_name(recording: Recording, format_: str) -> Path:
    """Where the transcript of ``recording`` belongs, relative to the output directory."""
    return recording.place.with_name(f"{recording.place.stem}.{_SUFFIXES.get(format_, format_)}")


@contextmanager
def open_output(format_: str, directory: Path | None, several: bool, made_with: Mapping[str, Any]) -> Iterator[Output]:
    """The terminal, or ``directory`` if there is one, for transcripts that are ``made_with`` these settings.

    Raises:
        click.ClickException: the directory cannot be written to, or another process has it.
    """
    if directory is None:
        yield Terminal(format_, several)
        return
    with closing(Ledger(directory, made_with)) as ledger:
        yield Folder(format_, directory, ledger)


def check_output(format_: str, directory: Path | None, paths: Sequence[str], recordings: Iterable[Recording]) -> None:
    """Refuse, before a model is loaded, what would mix or overwrite results, or overwrite a recording.

    Raises:
        click.UsageError: it says what to change.
    """
    if directory is not None:
        _check_results(format_, directory, recordings)
    elif any(map(os.path.isdir, paths)):
        raise click.UsageError("a directory of recordings wants a directory for the results: add --output DIR")
    elif len(paths) > 1 and format_ in TIMED:
        raise click.UsageError(f"{format_} of several files would run together: add --output DIR")


def _check_results(format_: str, directory: Path, recordings: Iterable[Recording]) -> None:
    sources = defaultdict(list)
    for recording in recordings:
        sources[directory / result_name(recording, format_)].append(recording.path)
    taken = {os.path.realpath(path) for paths in sources.values() for path in paths}
    for result, paths in sources.items():
        if len(paths) > 1:
            names = " and ".join(map(shown, paths))
            raise click.UsageError(f"{names} would be written to {shown(result)}: give them different names")
        if os.path.realpath(result) in taken:
            raise click.UsageError(f"{shown(result)} is to be transcribed, and would be overwritten")


def _replace(target: Path, text: str) -> None:
    """Put a whole file in place of ``target``, or leave that as it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(_PART)
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, target)


def _render(format_: str, recording: Recording, transcript: Transcript) -> str:
    if format_ == "json":
        line = json.dumps({"file": recording.path, **as_dict(transcript)}, ensure_ascii=False, allow_nan=False)
        # Bytes of a name that are no text become escapes, which are JSON's too.
        return line.encode("utf-8", "backslashreplace").decode() + "\n"
    text = FORMATS[format_](transcript)
    return text if format_ in TIMED else text + "\n"
