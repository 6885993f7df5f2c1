"""Many files through one model, with progress for people and a summary at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import click
from attrs import define, field
from tqdm import tqdm

from asr_core.cli._output import Output
from asr_core.errors import AsrError
from asr_core.types import Transcript


@define(eq=False)
class Batch:
    """Runs ``transcribe`` over files and counts: ``heard_s`` seconds of audio in ``spent_s`` seconds."""

    transcribe: Callable[[str], Transcript]
    output: Output
    done: int = 0
    failed: int = 0
    heard_s: float = 0.0
    _began: float = field(factory=time.monotonic)

    def run(self, files: Sequence[str]) -> None:
        """Write each result as soon as it is there.

        Raises:
            AsrError: the request is at fault, so that every further file would fail alike.
        """
        with tqdm(files, unit="file", file=sys.stderr, disable=not sys.stderr.isatty()) as progress:
            for file in progress:
                self._one(file, progress)
        self._summarize()

    def _one(self, file: str, progress: tqdm[str]) -> None:
        try:
            transcript = self.transcribe(file)
            with progress.external_write_mode(sys.stdout):
                self.output.write(file, transcript)
            self.done += 1
            self.heard_s += transcript.duration
        except AsrError as error:
            if error.param not in (None, "file"):
                raise
            self._fail(file, error.message, progress)
        except OSError as error:
            self._fail(file, error.strerror or str(error), progress)

    def _fail(self, file: str, reason: str, progress: tqdm[str]) -> None:
        self.failed += 1
        with progress.external_write_mode(sys.stderr):
            click.echo(f"{file}: {reason}", err=True)

    def _summarize(self) -> None:
        spent = time.monotonic() - self._began
        factor = f", real-time factor {spent / self.heard_s:.3f}" if self.heard_s else ""
        counts = f"{self.done}/{self.done + self.failed} files"
        click.echo(f"{counts}, {self.heard_s:.1f} s of audio in {spent:.1f} s{factor}", err=True)
