"""Where transcripts of files go: to the terminal one after another, or to a file each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from attrs import frozen

from asr_core.formats import FORMATS, TIMED, as_dict
from asr_core.types import Transcript

_SUFFIXES = {"text": "txt"}


@frozen
class Output:
    """How results are written: in ``format``, under ``directory`` if there is one, with headers if ``several``."""

    format: str
    directory: Path | None
    several: bool

    def target(self, file: str) -> Path | None:
        """``DIR/stem.ext`` of ``file``, None for the terminal."""
        if self.directory is None:
            return None
        return self.directory / f"{Path(file).stem}.{_SUFFIXES.get(self.format, self.format)}"

    def write(self, file: str, transcript: Transcript) -> None:
        """Write one transcript.

        Raises:
            OSError: the directory cannot be written to.
        """
        text, target = self._render(file, transcript), self.target(file)
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        else:
            header = f"==> {file} <==\n" if self.several and self.format == "text" else ""
            click.echo(header + text, nl=False)

    def _render(self, file: str, transcript: Transcript) -> str:
        if self.format == "json":
            return json.dumps({"file": file, **as_dict(transcript)}, ensure_ascii=False, allow_nan=False) + "\n"
        text = FORMATS[self.format](transcript)
        return text if self.format in TIMED else text + "\n"


def check_output(output: Output, files: Sequence[str]) -> None:
    """Refuse, before a model is loaded, what would mix or overwrite results.

    Raises:
        click.UsageError: several subtitles on one terminal, or two files with one target.
    """
    if output.directory is None:
        if output.several and output.format in TIMED:
            raise click.UsageError(f"{output.format} of several files would run together: add --output DIR")
        return
    for target, count in Counter(map(output.target, files)).items():
        if count > 1:
            raise click.UsageError(f"{count} files would be written to {target}: give them different names")
