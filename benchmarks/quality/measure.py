"""One system over one set: errors, times and the ledger, in numbers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from typing import Any

from attrs import asdict, frozen

from .corpus import Set
from .score import Score, score
from .systems import Heard, System


@frozen
class Result:
    """A row of the table.

    ``errors`` per hundred words or letters. ``seconds`` is from the first request to the last answer, ``latency`` the
    longest of one. ``states`` are seconds of audio by what the ledger says became of them. ``missing`` counts runs of
    words that nobody wrote, ``unreported`` those of them of which the ledger says nothing.
    """

    set: str
    system: str
    policy: str
    unit: str
    words: int
    errors: float
    substitutions: int
    deletions: int
    insertions: int
    audio: float
    seconds: float
    latency: float
    first: float | None
    states: dict[str, float]
    guards: dict[str, int]
    missing: int
    unreported: int

    @property
    def rtf(self) -> float:
        """Seconds of work per second of audio."""
        return self.seconds / self.audio

    @property
    def decoded(self) -> float:
        """Share of the audio that was decoded, once or again."""
        return (self.states.get("decoded", 0.0) + self.states.get("redecoded", 0.0)) / self.audio

    @property
    def key(self) -> str:
        """What names the row."""
        return f"{self.set} / {self.system} / {self.policy}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"rtf": self.rtf}


def measure(system: System, of: Set) -> tuple[Result, list[Heard]]:
    """All sounds of the set, one by one unless it wants them at once."""
    begun = time.monotonic()
    with ThreadPoolExecutor(len(of.sounds) if of.at_once else 1) as pool:
        heard = list(pool.map(system.hear, of.sounds))
    seconds = time.monotonic() - begun
    scores = [score(sound.sentences, answer.text, of.unit) for sound, answer in zip(of.sounds, heard, strict=True)]
    return _result(system, of, seconds, heard, scores), heard


def _result(system: System, of: Set, seconds: float, heard: Sequence[Heard], scores: Sequence[Score]) -> Result:
    total: Score = reduce(add, scores)
    states, guards = Counter[str](), Counter[str]()
    for answer in heard:
        guards.update(kind for kind, _, _ in answer.guards)
        for part in answer.coverage:
            states[part.state] += part.end - part.start
    runs = [(answer, run) for answer, one in zip(heard, scores, strict=True) for run in one.missing_runs()]
    firsts = [answer.first for answer in heard if answer.first is not None]
    return Result(
        set=of.name,
        system=system.name,
        policy=system.policy,
        unit=of.unit,
        words=len(total.words),
        errors=total.percent,
        substitutions=total.substitutions,
        deletions=total.deletions,
        insertions=total.insertions,
        audio=sum(sound.seconds for sound in of.sounds),
        seconds=seconds,
        latency=max(answer.seconds for answer in heard),
        first=max(firsts, default=None),
        states={state: round(length, 1) for state, length in states.items()},
        guards=dict(guards),
        missing=len(runs),
        unreported=sum(not answer.reports(*run) for answer, run in runs),
    )
