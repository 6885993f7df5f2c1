"""The bar a person sees while files are transcribed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from attrs import define
from tqdm import tqdm

from asr_core.cli._search import Recording


def open_bar(recordings: Iterable[Recording]) -> Any:
    """A bar over the bytes of ``recordings`` with the time left, shown where standard error is a terminal."""
    return tqdm(
        total=sum(recording.size for recording in recordings),
        unit="B",
        unit_scale=True,
        # It moves seldom and by leaps: every one is shown, and the time left follows from all there were.
        mininterval=0,
        miniters=1,
        smoothing=0,
        file=sys.stderr,
        disable=not sys.stderr.isatty(),
    )


@define(eq=False)
class Share:
    """The part of ``bar`` that stands for one file of ``size`` bytes."""

    bar: Any
    size: int
    told: int = 0

    def tell(self, done_s: float, of_s: float) -> None:
        """So many of so many seconds are done."""
        now = round(self.size * min(1.0, done_s / of_s))
        self.bar.update(now - self.told)
        self.told = now
