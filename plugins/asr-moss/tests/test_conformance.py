"""The suite every model plugin passes, on random weights and on taught ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from asr_core.api import Transcriber
from asr_core.testing.conformance import ModelConformance
from asr_core.types import Samples

from .conftest import RATE


class TestRandom(ModelConformance):
    readme = Path(__file__).parents[1] / "README.md"

    @pytest.fixture(scope="class")
    @classmethod
    def transcriber(cls, tiny: Transcriber) -> Transcriber:
        return tiny

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls, reading: Samples) -> Samples:
        return reading[: 3 * RATE]

    @pytest.fixture(scope="class")
    @classmethod
    def special(cls, transcriber: Transcriber) -> Mapping[str, int]:
        special: Mapping[str, int] = transcriber.served.model.frontend.prompts.special
        return special


class TestTaught(TestRandom):
    @pytest.fixture(scope="class")
    @classmethod
    def transcriber(cls, taught: Transcriber) -> Transcriber:
        return taught

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls, reading: Samples) -> Samples:
        """What it was taught with."""
        return reading[: 6 * RATE]
