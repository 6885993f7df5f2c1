"""The contract every model is held to, for one that can do all and for one that can do little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from asr_core.testing.http_contract import HttpContract
from asr_core.testing.server import Server


class Fake(HttpContract):
    @pytest.fixture(scope="class")
    @staticmethod
    def server(server: Server) -> Server:
        return server

    @pytest.fixture(scope="class")
    @staticmethod
    def speech(wav: Callable[[str], bytes]) -> bytes:
        return wav("grüße an 你好 alle")


class TestAble(Fake):
    model = "able"


class TestFake(Fake):
    model = "fake"
