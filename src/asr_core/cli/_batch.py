"""Many files through one model; one that fails does not stop the others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import click
from attrs import frozen

from asr_core.cli._names import reason, shown
from asr_core.cli._output import Output
from asr_core.cli._progress import Share, open_bar
from asr_core.cli._search import Recording
from asr_core.cli._tally import Tally
from asr_core.errors import AsrError
from asr_core.types import Transcript


class Transcribe(Protocol):
    """Transcribes a file, and tells ``progress`` meanwhile how many of how many seconds are done."""

    def __call__(self, file: str, /, *, progress: Callable[[float, float], None]) -> Transcript: ...


@frozen(eq=False)
class Batch:
    """Runs ``transcribe`` over files and counts in ``tally``."""

    transcribe: Transcribe
    output: Output
    tally: Tally

    def run(self, recordings: Sequence[Recording]) -> None:
        """Write each result as soon as it is there; what is said to be wrong is that file's, whatever it names.

        An aligner may not know the language of one file, nor a prompt leave room for the sound of another.
        """
        with open_bar(recordings) as bar:
            for number, recording in enumerate(recordings, 1):
                bar.set_description_str(f"file {number} of {len(recordings)}")
                share = Share(bar, recording.size)
                self._one(recording, share)
                share.tell(1.0, 1.0)

    def _one(self, recording: Recording, share: Share) -> None:
        began = time.monotonic()
        try:
            write = self.output.begin(recording)
            transcript = self.transcribe(recording.path, progress=share.tell)
            with share.bar.external_write_mode(sys.stdout):
                write(transcript)
        except AsrError as error:
            self._fail(recording, error.message)
        except OSError as error:
            self._fail(recording, reason(error))
        else:
            self._finish(recording, transcript, time.monotonic() - began, share.bar)

    def _fail(self, recording: Recording, why: str) -> None:
        self.tally.failures.append(f"{shown(recording.path)}: {why}")

    def _finish(self, recording: Recording, transcript: Transcript, spent: float, bar: Any) -> None:
        self.tally.add(recording.path, transcript, spent)
        if bar.disable and self.tally.wanted > 1:
            line = f"{shown(recording.path)}: {transcript.duration:.1f} s of audio in {spent:.1f} s"
            click.echo(line, err=True)
