"""The contract every model is held to over HTTP, with real weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from asr_core.testing.http_contract import HttpContract

from .conftest import LIBRIVOX


class TestBase(HttpContract):
    model = "whisper-base"

    @pytest.fixture(scope="class")
    @staticmethod
    def speech() -> bytes:
        return Path(LIBRIVOX / "0870.wav").read_bytes()
