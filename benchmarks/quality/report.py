"""The table and the JSON of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .measure import Result
from .seams import SeamLoss

HEAD = (
    "set", "system", "policy", "errors %", "sub/del/ins", "audio s", "latency s", "first s", "RTF",
    "decoded/silent/redecoded/lost s", "guards", "missing (unreported)",
)  # fmt: skip
STATES = ("decoded", "silent", "redecoded", "lost")


def table(results: Sequence[Result]) -> str:
    """Markdown, a row per result."""
    return "\n".join([_line(HEAD), _line(["---"] * len(HEAD)), *(_line(_cells(result)) for result in results)])


def _cells(result: Result) -> list[str]:
    guards = ", ".join(f"{kind} {count}" for kind, count in sorted(result.guards.items()))
    return [
        result.set,
        result.system,
        result.policy,
        f"{result.errors:.2f}" + (" (letters)" if result.unit == "letter" else ""),
        f"{result.substitutions}/{result.deletions}/{result.insertions}",
        f"{result.audio:.0f}",
        f"{result.latency:.1f}",
        "" if result.first is None else f"{result.first:.1f}",
        f"{result.rtf:.3f}",
        "/".join(f"{result.states.get(state, 0):.0f}" for state in STATES) if result.states else "",
        guards,
        f"{result.missing} ({result.unreported})" if result.states else str(result.missing),
    ]


def seam_lines(seams: Mapping[str, SeamLoss]) -> str:
    """A line per set."""
    return "\n".join(
        f"{name}: {seam.words} words within 1 s of a cut, {seam.near:.2f} % errors, elsewhere {seam.elsewhere:.2f} %: "
        f"{seam.loss:+.2f} points (95 %: {seam.low:+.2f} to {seam.high:+.2f})"
        for name, seam in seams.items()
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
