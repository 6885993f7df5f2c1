"""A server in a process of its own, for tests that ask over HTTP what a caller would."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai

PATIENCE_S = 120.0
"""Within which everything that is waited for happens, loading included, on a machine that is busy."""

TRANSCRIPTIONS = "/v1/audio/transcriptions"


class Server:
    """A process of ``asr-core serve`` on a free port of this machine, on the CPU; its log is kept in ``directory``."""

    def __init__(self, directory: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._log = directory / "output.txt"
        self._closing = ExitStack()
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "asr_core.cli", "serve", "--port", "0", "--device", "cpu", *arguments]
            # What is started is this package, by the interpreter that runs the test.
            self.process = subprocess.Popen(  # noqa: S603
                command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        try:
            self.url = self._wait_for(r"serving on (http://\S+)").group(1)
        except BaseException:
            self.close()
            raise
        host, port = self.url.removeprefix("http://").split(":")
        self.address = (host, int(port))
        self.http = self._closing.enter_context(httpx.Client(base_url=self.url, timeout=PATIENCE_S))

    @property
    def output(self) -> str:
        """Everything it wrote, its log included."""
        return self._log.read_text()

    def wait_for(self, pattern: str) -> None:
        """Until the output matches ``pattern``."""
        self._wait_for(pattern)

    def _wait_for(self, pattern: str) -> re.Match[str]:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if found := re.search(pattern, self.output):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n{self.output}")

    def client(self) -> openai.OpenAI:
        """The unmodified client; without retries, so that a test sees the first answer."""
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0)
        return self._closing.enter_context(client)

    def async_client(self) -> openai.AsyncOpenAI:
        """The same for a loop; who asked for it closes it."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0)

    def connect(self) -> socket.socket:
        """A bare connection."""
        return self._closing.enter_context(socket.create_connection(self.address, timeout=PATIENCE_S))

    def post(self, *parts: tuple[str, Any], path: str = TRANSCRIPTIONS, **options: Any) -> httpx.Response:
        """Send form parts in this order: a str is a text field, bytes are a file."""
        files = [(name, (None, value) if isinstance(value, str) else ("x", value)) for name, value in parts]
        return self.http.post(path, files=files, **options)

    def engine(self, model: str) -> dict[str, int]:
        """The counters of its engine."""
        counters: dict[str, int] = self.http.get("/health").json()["x_asr"]["models"][model]["engine"]
        return counters

    def wait_for_engine(self, model: str, **counters: int) -> dict[str, int]:
        """Until its counters have these values; all of them."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if (now := self.engine(model)) | counters == now:
                return now
        raise AssertionError(f"not {counters} but {self.engine(model)}")

    def close(self) -> None:
        """End the process, hard if need be."""
        self._closing.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
