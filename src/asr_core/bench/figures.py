"""What rounds come to in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

import numpy as np
from attrs import astuple, frozen

from asr_core.bench.drive import Outcome, Round
from asr_core.bench.score import Rate, Scorer, Unit, total, unit_of


@frozen
class Spread:
    """Of durations in seconds. A percentile that falls between two is interpolated linearly (numpy's ``linear``)."""

    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread | None:
        """Of all ``seconds``, None of none."""
        if not seconds:
            return None
        return cls(float(np.mean(seconds)), *(float(value) for value in np.percentile(seconds, (50, 95, 99))))


@frozen
class Figures:
    """A round, or the medians of several. Only requests that were answered count, but for ``failed``.

    ``throughput`` is requests per second, ``rtfx`` seconds of audio per second, ``first`` the time to the first delta,
    ``cpu`` seconds that this process computed per request. Errors are percent, None where no sound is counted in that
    unit.
    """

    requests: int
    failed: int
    throughput: float
    rtfx: float
    cpu: float
    latency: Spread | None
    first: Spread | None
    word_errors: float | None
    letter_errors: float | None


def figures(round_: Round, scorer: Scorer) -> Figures:
    """Of one round."""
    answered = [outcome for outcome in round_.outcomes if outcome.text is not None]
    return Figures(
        requests=len(round_.outcomes),
        failed=len(round_.outcomes) - len(answered),
        throughput=len(answered) / round_.seconds,
        rtfx=sum(outcome.sound.seconds for outcome in answered) / round_.seconds,
        cpu=round_.cpu / len(round_.outcomes),
        latency=Spread.of([outcome.seconds for outcome in answered]),
        first=Spread.of([outcome.first for outcome in answered if outcome.first is not None]),
        word_errors=_percent(errors(answered, scorer, "word")),
        letter_errors=_percent(errors(answered, scorer, "letter")),
    )


def errors(answered: Sequence[Outcome], scorer: Scorer, unit: Unit) -> Rate | None:
    """In all texts whose errors are counted in ``unit``."""
    lines = ((outcome.sound.line, outcome.text or "") for outcome in answered)
    return total(
        scorer.rate(line.reference, text, line.language) for line, text in lines if unit_of(line.language) == unit
    )


def _percent(rate: Rate | None) -> float | None:
    return None if rate is None else rate.percent


def failures(rounds: Sequence[Round]) -> tuple[Counter[str], dict[str, str]]:
    """How many requests failed of each kind, and what the first of the kind said."""
    failed = [outcome.failure for round_ in rounds for outcome in round_.outcomes if outcome.failure]
    return Counter(kind for kind, _ in failed), dict(reversed(failed))


def medians(rounds: Sequence[Figures]) -> Figures:
    """Number by number; requests and failures are added up, since none may be lost."""
    return Figures(
        requests=sum(one.requests for one in rounds),
        failed=sum(one.failed for one in rounds),
        throughput=median(one.throughput for one in rounds),
        rtfx=median(one.rtfx for one in rounds),
        cpu=median(one.cpu for one in rounds),
        latency=_spread([one.latency for one in rounds]),
        first=_spread([one.first for one in rounds]),
        word_errors=_middle([one.word_errors for one in rounds]),
        letter_errors=_middle([one.letter_errors for one in rounds]),
    )


def _spread(found: Sequence[Spread | None]) -> Spread | None:
    spreads = [spread for spread in found if spread]
    return Spread(*map(median, zip(*map(astuple, spreads), strict=True))) if spreads else None


def _middle(found: Sequence[float | None]) -> float | None:
    values = [value for value in found if value is not None]
    return median(values) if values else None
