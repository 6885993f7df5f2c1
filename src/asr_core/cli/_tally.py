"""What became of many files, for the lines at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import Factory, define

from asr_core.cli._names import shown
from asr_core.cli._output import Output
from asr_core.cli._search import Recording
from asr_core.formats import covered, provenance, stamp
from asr_core.types import Transcript


@define(eq=False)
class Tally:
    """Counts files: of ``wanted`` ones ``done`` in this run and a line of ``failures`` each; ``there`` from an earlier.

    ``others`` hold no audio. ``heard_s`` seconds of audio took ``spent_s``.
    """

    failures: list[str]
    others: int
    there: int = 0
    wanted: int = 0
    done: int = 0
    heard_s: float = 0.0
    spent_s: float = 0.0
    lost_s: float = 0.0
    losses: list[str] = Factory(list)
    guards: Counter[str] = Factory(Counter)

    def outstanding(self, output: Output, recordings: Iterable[Recording]) -> list[Recording]:
        """Those of ``recordings`` that ``output`` lacks; the others are counted as ``there``."""
        lacking = []
        for recording in recordings:
            if output.has(recording):
                self.there += 1
            else:
                lacking.append(recording)
        self.wanted = len(lacking) + len(self.failures)
        return lacking

    def add(self, path: str, transcript: Transcript, spent_s: float) -> None:
        """Count one finished file."""
        self.done += 1
        self.heard_s += transcript.duration
        self.spent_s += spent_s
        self.guards.update(guard.kind for guard in transcript.guards)
        self.lost_s += covered(transcript)["lost"]
        if lost := [part for part in provenance(transcript)["coverage"] if part["state"] == "lost"]:
            self.losses.append(f"{shown(path)}: lost {'; '.join(map(_told, lost))}")

    def lines(self) -> Iterator[str]:
        """Failures, files with lost speech, and a summary."""
        yield from self.failures
        yield from self.losses
        yield ", ".join(self._counts())

    def _counts(self) -> Iterator[str]:
        yield f"{self.done}/{self.wanted} files"
        if self.there:
            yield f"{self.there} finished earlier"
        if self.others:
            yield f"{self.others} without audio left out"
        yield f"{self.heard_s:.1f} s of audio in {self.spent_s:.1f} s"
        if self.heard_s:
            yield f"real-time factor {self.spent_s / self.heard_s:.3f}"
        if self.losses:
            yield f"{len(self.losses)} with losses ({self.lost_s:.1f} s of speech)"
        if self.guards:
            kinds = " ".join(f"{kind}={count}" for kind, count in sorted(self.guards.items()))
            yield f"guards: {kinds}"


def _told(part: Mapping[str, Any]) -> str:
    """When, and why; nobody knows how long it was what could not be read."""
    times = dict.fromkeys(stamp(round(1000 * part[bound]), ".") for bound in ("start", "end"))
    return f"{' to '.join(times)} {part.get('note', '')}".rstrip()
