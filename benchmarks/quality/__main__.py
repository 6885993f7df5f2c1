"""Errors, time and coverage together, beside faster-whisper on the same weights, and what cutting costs.

Run by ``nox -s quality``. Prints the table of docs/quality.md, writes all of it as JSON, and exits with 1 when a gate
does not hold or a number is worse than its reference by more than the slack stated there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import asdict

from .corpus import CACHE, Set, corpus
from .gates import broken, record, regressions, rows
from .measure import Result, measure
from .report import seam_lines, table
from .score import Word, score
from .seams import SeamLoss, seam_loss
from .systems import BEAM_SIZE, COMPARED, System, faster_whisper, library, streamed

TARGETS = (28.0, 25.0, 22.0)
"""Longest clips, beside the policy's own, with which the cuts of a read fall elsewhere each time."""

SHIFTED = ("natural", "tight")
STREAMED = ("natural", "librivox")


class Run:
    """What has been measured: rows, and for the seams the words of each run with its cuts."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.cut: dict[str, list[tuple[Sequence[Word], Sequence[float]]]] = defaultdict(list)

    def add(self, system: System, of: Set) -> None:
        """Measure, and show the row at once: the whole takes most of an hour."""
        result, heard = measure(system, of)
        self.results.append(result)
        print(table([result]).splitlines()[-1], flush=True)
        if of.name in SHIFTED and system.policy.startswith(COMPARED):
            self.cut[of.name] += [
                (score(sound.sentences, answer.text, of.unit).words, answer.cuts)
                for sound, answer in zip(of.sounds, heard, strict=True)
                if answer.cuts
            ]

    @property
    def seams(self) -> dict[str, SeamLoss]:
        return {name: seam_loss(runs) for name, runs in self.cut.items() if runs}


def run(sets: Sequence[Set], work: Path) -> Run:
    """One system after another, so that none shares the machine with another."""
    done = Run()
    shifted = [of for of in sets if of.name in SHIFTED]
    searches: list[tuple[dict[str, Any], Sequence[Set]]] = [
        ({"beam_size": 1}, sets),
        ({"beam_size": BEAM_SIZE}, sets),
        *(({"beam_size": BEAM_SIZE, "target_s": target}, shifted) for target in TARGETS),
    ]
    for options, chosen in searches:
        with library(**options) as system:
            for of in chosen:
                done.add(system, of)
    with streamed(work) as system:
        for of in sets:
            if of.name in STREAMED:
                done.add(system, of)
    for system in faster_whisper(work / "weights"):
        for of in sets:
            if of.long:
                done.add(system, of)
    return done


def finish(done: Run, sets: Sequence[Set], out: Path) -> int:
    """Write everything down; 1 if something is wrong."""
    wrong = [*broken(done.results, done.seams, {of.name for of in sets if of.long}), *regressions(done.results)]
    out.write_text(
        json.dumps(
            {
                "rows": [result.as_dict() for result in done.results],
                "seams": {name: asdict(seam) | {"loss": seam.loss} for name, seam in done.seams.items()},
                "watched": rows(done.results),
                "wrong": wrong,
            },
            indent=1,
        )
        + "\n"
    )
    print("", table(done.results), "", seam_lines(done.seams), *wrong, sep="\n")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of the long reads, which last about 20")
    parser.add_argument("--only", help="sets, by name, with commas between")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the voice is kept")
    parser.add_argument("--out", type=Path, default=CACHE / "quality.json")
    parser.add_argument("--record", type=Path, nargs="+", help="make references of what several runs wrote instead")
    options = parser.parse_args()
    if options.record:
        record(options.record)
        return 0
    sets = corpus(options.cache, options.minutes)
    if options.only:
        sets = [of for of in sets if of.name in options.only.split(",")]
    with tempfile.TemporaryDirectory() as work:
        return finish(run(sets, Path(work)), sets, options.out)


if __name__ == "__main__":
    sys.exit(main())
