"""What was measured, for programs and for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from asr_core.bench.figures import Figures, Spread
from asr_core.bench.measure import Level

HEADER = (
    "CALLERS", "REQUESTS/S", "x REAL TIME", "MEAN s", "P50 s", "P95 s", "P99 s", "FIRST P50 s", "WER %", "CER %",
    "CPU s", "FAILED",
)  # fmt: skip


@frozen
class Report:
    """Levels, and all that says what the numbers are of.

    ``memory`` is MiB above the level after imports, None where nobody knows. ``about`` is told as it stands: model,
    target, placement, machine, versions, date, seed, normaliser.
    """

    about: Mapping[str, Any]
    memory: float | None
    levels: Sequence[Level]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.about,
            "peak_memory_mib": self.memory,
            "levels": [asdict(level) for level in self.levels],
        }

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Cells under :data:`HEADER`."""
        return [_cells(level.callers, level.median) for level in self.levels]

    def lines(self) -> Iterator[str]:
        """What stands below the table."""
        memory = "not measured" if self.memory is None else f"{self.memory:.0f} MiB above the level after imports"
        yield f"peak memory: {memory}"
        for name, value in self.about.items():
            yield f"{name}: {_told(value)}"

    def failed(self) -> Iterator[str]:
        """A line for each kind of failure at each level."""
        for level in self.levels:
            for kind, count in level.failures.items():
                yield f"{count} of {level.median.requests} failed at {level.callers}: {kind}: {level.examples[kind]}"


def _cells(callers: int, found: Figures) -> tuple[str, ...]:
    latency, first = found.latency, found.first
    spread = [_number(getattr(latency, name)) if latency else "" for name in ("mean", "p50", "p95", "p99")]
    return (
        str(callers),
        _number(found.throughput),
        f"{found.rtfx:.1f}",
        *spread,
        _number(_p50(first)),
        _number(found.word_errors),
        _number(found.letter_errors),
        _number(found.cpu, 4),
        str(found.failed),
    )


def _p50(spread: Spread | None) -> float | None:
    return None if spread is None else spread.p50


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_told(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return str(value)
