"""The suite every model plugin passes, on the small checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.testing.conformance import ModelConformance
from asr_core.types import Samples

from .conftest import LIBRIVOX


class TestSmall(ModelConformance):
    model = "qwen3-asr-0.6b"
    readme = Path(__file__).parents[1] / "README.md"

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> Samples:
        return audio.load(LIBRIVOX / "0880.wav", 16_000).samples

    @pytest.fixture(scope="class")
    @classmethod
    def transcriber(cls, checkpoint: Path) -> Iterator[Transcriber]:
        with load(str(checkpoint), device="cpu", dtype="float32") as transcriber:
            yield transcriber

    @pytest.fixture(scope="class")
    @classmethod
    def special(cls, transcriber: Transcriber) -> Mapping[str, int]:
        """All added tokens of the tokenizer."""
        special: Mapping[str, int] = transcriber.served.model.frontend.template.tokenizer.special
        return special
