"""The contract every model is held to over HTTP, with real weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asr_core.testing.http_contract import HttpContract, error_of
from asr_core.testing.server import Server

from .conftest import LIBRIVOX, MULTILINGUAL


class TestBase(HttpContract):
    model = "whisper-base"

    def test_a_beam(self, server: Server) -> None:
        """An option of the model is a field of the form, in the stream too."""
        asked: dict[str, Any] = {"model": self.model, "file": MULTILINGUAL / "fr" / "pangrama.wav", "language": "fr"}
        create = server.client().audio.transcriptions.create
        said = create(**asked, extra_body={"beam_size": 5}).text
        assert said != create(**asked).text  # a clip whose greedy text is another
        events = create(**asked, extra_body={"beam_size": 5}, stream=True)
        assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == said

    @pytest.mark.parametrize("size", ["0", "99", "many", "2.5"])
    def test_a_beam_that_cannot_be(self, server: Server, speech: bytes, size: str) -> None:
        error = error_of(self.ask(server, speech, ("beam_size", size)), 400)
        assert error["param"] == "beam_size"
        assert "beam_size" in error["message"]

    @pytest.fixture(scope="class")
    @staticmethod
    def speech() -> bytes:
        return Path(LIBRIVOX / "0870.wav").read_bytes()
