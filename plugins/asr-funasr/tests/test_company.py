"""Requests that join and leave at random: each gets the tokens it gets alone."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

from asr_core.api import Transcriber
from asr_core.types import Samples

from .conftest import tokens
from .test_parity import requests


def test_company_changes_no_token(transcriber: Transcriber, reading: Samples) -> None:
    """test_parity.py shows that the tokens of a request alone are those of generate."""
    asked = requests(reading) * 3
    alone = [tokens(transcriber, samples, **request) for samples, request in requests(reading)] * 3
    dice = random.Random(7)
    pauses = [dice.uniform(0, 0.5) for _ in asked]

    def join(number: int) -> object:
        time.sleep(pauses[number])
        samples, request = asked[number]
        return tokens(transcriber, samples, **request)

    with ThreadPoolExecutor(len(asked)) as pool:
        assert list(pool.map(join, range(len(asked)))) == alone
    assert transcriber.served.engine is not None
    assert transcriber.served.engine.statistics().running == 0
