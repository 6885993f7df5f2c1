"""Rounds at every number of callers, in turn, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from asr_core.bench.drive import Round, Target, drive, prepare
from asr_core.bench.figures import Figures, failures, figures, medians
from asr_core.bench.score import Scorer
from asr_core.bench.sounds import Sound
from asr_core.errors import BenchError

PER_CALLER = 4
"""Requests that each caller makes at least, so that the end of a round, when not all are busy, weighs little."""


@frozen
class Plan:
    """Rounds at each of ``callers``, ``repeats`` of them; ``requests`` in a round, None for as many as make sense."""

    callers: tuple[int, ...]
    repeats: int
    seed: int
    requests: int | None = None

    def count(self, callers: int, sounds: int) -> int:
        """Requests in a round: whole passes over the manifest, so that errors at all levels are of the same sounds."""
        return self.requests or sounds * -(-PER_CALLER * callers // sounds)


@frozen
class Level:
    """What so many ``callers`` saw: the median of ``rounds``, and the failures of all of them by kind.

    ``examples`` has what the first failure of each kind said.
    """

    callers: int
    median: Figures
    rounds: tuple[Figures, ...]
    failures: Counter[str]
    examples: Mapping[str, str]


def measure(
    target: Target, sounds: Sequence[Sound], plan: Plan, scorer: Scorer, tell: Callable[[str], None]
) -> list[Level]:
    """A warm-up that does not count, then every number of callers in each repeat; ``tell`` hears what begins.

    Raises:
        BenchError: not one request of the warm-up was answered; the message has the reason.
    """
    most = max(plan.callers)
    tell(f"warm-up: {most} requests at once")
    _require_answers(drive(target, prepare(sounds, most, plan.seed), most))
    rounds: dict[int, list[Round]] = {callers: [] for callers in plan.callers}
    made = most
    for repeat in range(plan.repeats):
        for callers, done in rounds.items():
            count = plan.count(callers, len(sounds))
            tell(f"round {repeat + 1} of {plan.repeats}: {count} requests, {callers} at once")
            done.append(drive(target, prepare(sounds, count, plan.seed, made), callers))
            made += count
    return [_level(callers, done, scorer) for callers, done in rounds.items()]


def _require_answers(warm_up: Round) -> None:
    if all(outcome.failure for outcome in warm_up.outcomes):
        kinds, examples = failures([warm_up])
        kind, _ = kinds.most_common(1)[0]
        raise BenchError(f"no request of the warm-up was answered: {kind}: {examples[kind]}")


def _level(callers: int, rounds: Sequence[Round], scorer: Scorer) -> Level:
    found = [figures(round_, scorer) for round_ in rounds]
    return Level(callers, medians(found), tuple(found), *failures(rounds))
