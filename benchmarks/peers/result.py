"""What the rounds of one system come to, the table of all, and what must hold between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from asr_core.bench.drive import Round
from asr_core.bench.figures import Figures, failures, figures, medians
from asr_core.bench.score import Scorer
from asr_core.kernels import fastest_dtype

OURS, FASTEST, REFERENCE = "asr-core", f"vLLM {fastest_dtype('cpu')}", "transformers float32"
"""The row that is judged, whom it must outrun, and whose errors are those of the weights."""

MIN_RATIO = 1.5
"""Throughput at every number of callers, and speed on the long file, in multiples of FASTEST's."""

MAX_WORDS = 1.0
"""Words by which one pass over the short clips may be worse than REFERENCE's."""

HEADER = ("system", "requests/s at 1", "at 4", "at 16", "x real time, long", "WER % short", "WER % long", "peak MiB")

Place = tuple[str, int]
"""A set's name and a number of callers."""


@frozen
class Result:
    """Medians by set and callers; ``memory`` in MiB above the level after imports; ``failed`` by what failures said."""

    system: str
    medians: Mapping[Place, Figures]
    rounds: Mapping[Place, Sequence[Figures]]
    memory: float
    failed: Mapping[str, int]

    @classmethod
    def of(cls, system: str, rounds: Mapping[Place, Sequence[Round]], memory: float, scorer: Scorer) -> Result:
        """Score and count."""
        found = {place: [figures(round_, scorer) for round_ in some] for place, some in rounds.items()}
        kinds, examples = failures([round_ for some in rounds.values() for round_ in some])
        failed = {f"{kind}: {examples[kind]}": count for kind, count in kinds.items()}
        return cls(system, {place: medians(some) for place, some in found.items()}, found, memory, failed)

    def errors(self, name: str) -> float | None:
        """Percent in a set, at the number of callers where it is highest."""
        at = [figures.word_errors for (of, _), figures in self.medians.items() if of == name]
        return max((percent for percent in at if percent is not None), default=None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        places = {
            f"{name} at {callers}": {
                "median": asdict(figures),
                "rounds": [asdict(one) for one in self.rounds[name, callers]],
            }
            for (name, callers), figures in self.medians.items()
        }
        return {"system": self.system, "peak_memory_mib": self.memory, "failed": dict(self.failed), "sets": places}


def table(results: Sequence[Result]) -> str:
    """A row each, in Markdown."""
    lines = [HEADER, ("---",) * len(HEADER), *map(_cells, results)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.system,
        *(f"{result.medians['short', callers].throughput:.2f}" for callers in (1, 4, 16)),
        f"{result.medians['long', 1].rtfx:.1f}",
        *("" if (errors := result.errors(name)) is None else f"{errors:.2f}" for name in ("short", "long")),
        f"{result.memory:.0f}",
    )


def broken(results: Sequence[Result], words: int) -> Iterator[str]:
    """A line for everything that does not hold; ``words`` is how many are said in one pass over the short clips."""
    by_name = {result.system: result for result in results}
    for result in results:
        yield from (f"{result.system}: {count} failed: {what}" for what, count in result.failed.items())
    ours, fastest, reference = (by_name.get(name) for name in (OURS, FASTEST, REFERENCE))
    if ours and fastest:
        yield from _slower(ours, fastest)
    if ours and reference:
        yield from _worse(ours, reference, words)


def not_judged(results: Sequence[Result]) -> Iterator[str]:
    """What nobody is there to be judged by."""
    names = {result.system for result in results}
    if OURS not in names:
        yield f"nothing is judged: {OURS} was not measured"
        return
    for what, whom in (("speed is", FASTEST), ("errors are", REFERENCE)):
        if whom not in names:
            yield f"{what} not judged: {whom} was not measured"


def _slower(ours: Result, fastest: Result) -> Iterator[str]:
    for place, median in ours.medians.items():
        ratio = median.rtfx / fastest.medians[place].rtfx if fastest.medians[place].rtfx else 0.0
        if ratio < MIN_RATIO:
            yield f"{place[0]} at {place[1]}: {ratio:.2f} times {FASTEST}, must be {MIN_RATIO:g}"


def _worse(ours: Result, reference: Result, words: int) -> Iterator[str]:
    mine, theirs = ours.errors("short"), reference.errors("short")
    if mine is not None and theirs is not None and (more := (mine - theirs) * words / 100) > MAX_WORDS + 1e-6:
        yield f"short: {more:.1f} words worse than {REFERENCE}, may be {MAX_WORDS:g}"
