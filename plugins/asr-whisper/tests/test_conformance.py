"""The suite every model plugin passes, on real weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from asr_core import audio
from asr_core.testing.conformance import ModelConformance
from asr_core.types import Samples

CLIP = Path(__file__).parents[3] / "tests" / "data" / "librivox" / "0880.wav"


class TestBase(ModelConformance):
    model = "whisper-base"

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> Samples:
        return audio.load(CLIP, 16_000).samples


class TestTinyEnglish(ModelConformance):
    model = "whisper-tiny.en"

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> Samples:
        return audio.load(CLIP, 16_000).samples
