"""An earlier report, and what a new one must keep beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from asr_core.bench.measure import Level
from asr_core.errors import BenchError

ERRORS = ("word_errors", "letter_errors")


@frozen
class Baseline:
    """Medians of an earlier report by number of callers."""

    levels: Mapping[int, Mapping[str, Any]]

    @classmethod
    def read(cls, file: Path, callers: Sequence[int], normaliser: str) -> Baseline:
        """From the JSON that a benchmark wrote.

        Raises:
            BenchError: it cannot be read, is no report, lacks one of ``callers``, or counts errors in another way.
        """
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
            normalised = report["normaliser"]
            levels = {int(level["callers"]): dict(level["median"]) for level in report["levels"]}
            for median in levels.values():
                float(median["throughput"]), *(median[name] for name in ERRORS)
        except OSError as error:
            raise BenchError(f"baseline {file} cannot be read: {error}", param="baseline") from error
        except (ValueError, TypeError, KeyError) as error:
            raise BenchError(f"baseline {file} is no report of a benchmark: {error!r}", param="baseline") from error
        if lacking := set(callers) - levels.keys():
            numbers = ", ".join(map(str, sorted(lacking)))
            raise BenchError(f"baseline {file} was not measured at a concurrency of {numbers}", param="concurrency")
        if normalised != normaliser:
            raise BenchError(f"baseline {file} was scored with the normaliser {normalised}", param="normaliser")
        return cls(levels)

    def broken(self, levels: Sequence[Level], ratio: float | None, increase: float | None) -> Iterator[str]:
        """A line for each level below ``ratio`` times the throughput, or with more than ``increase`` points of errors.

        Errors that either side has not, or has in another unit, cannot be compared, and that is a line too.
        """
        for level in levels:
            before = self.levels[level.callers]
            if ratio is not None and level.median.throughput < ratio * before["throughput"]:
                times = level.median.throughput / before["throughput"] if before["throughput"] else 0.0
                yield f"throughput at {level.callers} is {times:.2f} times the baseline's, must be {ratio:g}"
            for name in ERRORS if increase is not None else ():
                yield from _worse(level.callers, name, getattr(level.median, name), before[name], increase or 0.0)


def _worse(callers: int, name: str, now: float | None, before: float | None, increase: float) -> Iterator[str]:
    called = name.replace("_", " ")
    if (now is None) != (before is None):
        yield f"{called} at {callers} cannot be compared: only one side has any"
    elif now is not None and before is not None and now > before + increase:
        above = f"{now - before:.2f} points above the baseline's, may be {increase:g}"
        yield f"{called} at {callers} are {now:.2f} %, {above}"
