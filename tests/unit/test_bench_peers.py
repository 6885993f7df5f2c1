"""What must hold between the rows of the benchmark beside others."""

from __future__ import annotations

import pytest
from benchmarks.peers.result import FASTEST, HEADER, OURS, REFERENCE, Place, Result, broken, not_judged, table

from asr_core.bench.figures import Figures

PLACES: tuple[Place, ...] = (("short", 1), ("short", 4), ("short", 16), ("long", 1))
WORDS = 70


def row(system: str, speed: float, words: float = 1.0, failed: dict[str, int] | None = None) -> Result:
    """So fast everywhere, with so many words wrong in a pass over the clips."""
    found = {place: Figures(30, 0, speed, 5 * speed, 0.0, None, None, 100 * words / WORDS, None) for place in PLACES}
    return Result(system, found, {}, 100.0, failed or {})


@pytest.mark.parametrize(
    ("ours", "wrong"),
    [
        (row(OURS, 3.0), []),
        (row(OURS, 3.0, 2.0), []),
        (row(OURS, 2.0), [f"{name} at {callers}: 1.00 times {FASTEST}, must be 1.5" for name, callers in PLACES]),
        (row(OURS, 3.0, 2.2), [f"short: 1.2 words worse than {REFERENCE}, may be 1"]),
        (row(OURS, 3.0, failed={"HTTP 503: later": 2}), [f"{OURS}: 2 failed: HTTP 503: later"]),
    ],
)
def test_what_must_hold(ours: Result, wrong: list[str]) -> None:
    assert list(broken([ours, row(FASTEST, 2.0), row(REFERENCE, 1.0)], WORDS)) == wrong
    assert not list(not_judged([ours, row(FASTEST, 2.0), row(REFERENCE, 1.0)]))


def test_nothing_passes_unjudged() -> None:
    assert list(not_judged([row(OURS, 1.0)])) == [
        f"speed is not judged: {FASTEST} was not measured",
        f"errors are not judged: {REFERENCE} was not measured",
    ]
    assert list(not_judged([row(FASTEST, 1.0)])) == [f"nothing is judged: {OURS} was not measured"]


def test_a_row_for_everybody() -> None:
    lines = table([row(OURS, 3.0), row(FASTEST, 2.0)]).splitlines()
    assert lines[2] == "| asr-core | 3.00 | 3.00 | 3.00 | 15.0 | 1.43 | 1.43 | 100 |"
    assert {line.count("|") for line in lines} == {len(HEADER) + 1}
