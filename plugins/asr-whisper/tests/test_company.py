"""Sixteen requests that join and leave at random: each gets the tokens it gets alone."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asr_core.api import Transcriber

from .conftest import MULTILINGUAL


def tokens(base: Transcriber, path: Path) -> list[int]:
    return [token for segment in base.transcribe(path).segments for token in segment.tokens]


@pytest.mark.usefixtures("greedy")
def test_company_changes_no_token(base: Transcriber) -> None:
    """test_words.py shows that the tokens of a request alone are those of generate."""
    paths = sorted(MULTILINGUAL.glob("*/*.wav"))[:16]
    alone = {path: tokens(base, path) for path in paths}
    pauses = random.Random(7)

    def join(path: Path, pause: float) -> list[int]:
        time.sleep(pause)
        return tokens(base, path)

    with ThreadPoolExecutor(16) as pool:
        together = dict(zip(paths, pool.map(join, paths, [pauses.uniform(0, 2) for _ in paths]), strict=True))
    assert together == alone
    assert base.served.engine is not None
    assert base.served.engine.statistics().running == 0
