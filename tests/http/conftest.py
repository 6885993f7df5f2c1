"""A real server process on loopback, with the fake model and one that repeats what it was asked."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from asr_core.testing import tones
from asr_core.testing.distributions import write_distribution

ECHO = '''
    """The fake model in other clothes: it wants every kind of field, and answers with a refusal that quotes them."""

    import json

    from asr_core import ModelCard, hookimpl
    from asr_core.errors import InvalidRequestError
    from asr_core.testing.fake import decode_tokens, encode_batch, extract_features, load_weights, native_limit
    from asr_core.testing.fake import prepare_frontend
    from asr_core.types import Capabilities, Checkpoint, OptionSpec

    TYPES = {"count": "integer", "ratio": "number", "loud": "boolean", "who": "string", "voice": "audio"}


    @hookimpl
    def register_models(register):
        register(ModelCard("org/echo", ("echo",), ("testing/echo",)))


    @hookimpl
    def resolve_checkpoint(ref):
        return Checkpoint("org/echo", ref, path=None)


    @hookimpl
    def capabilities():
        options = tuple(OptionSpec(name, type_, name) for name, type_ in TYPES.items())
        choice = OptionSpec("mood", "string", "mood", choices=("glad", "sad"))
        return Capabilities(
            languages=("de", "en"), prompt="vocabulary", keywords=True, temperature=True, options=(*options, choice)
        )


    @hookimpl
    def prepare_clip(clip, request):
        if request.prompt == "fail":
            raise ValueError("secret of /etc/passwd")
        if request.prompt == "typed":
            raise InvalidRequestError("no such prompt", param="prompt", code="odd")
        asked = {
            "language": request.language,
            "prompt": request.prompt,
            "keywords": request.keywords,
            "temperature": request.temperature,
            "options": dict(request.options),
        }
        raise InvalidRequestError(json.dumps(asked))
'''


class Server:
    """A process of ``asr-core serve``; ``output`` is everything it wrote, its log included."""

    def __init__(self, directory: Path, environment: dict[str, str], *arguments: str) -> None:
        self._log = directory / "output.txt"
        self._closing = ExitStack()
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "asr_core.cli", "serve", "--port", "0", "--device", "cpu", *arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            self.url = self._wait_for(r"serving on (http://\S+)").group(1)
        except BaseException:
            self.close()
            raise
        host, port = self.url.removeprefix("http://").split(":")
        self.address = (host, int(port))
        self.http = self._closing.enter_context(httpx.Client(base_url=self.url, timeout=60))

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str) -> None:
        """Until the output matches ``pattern``."""
        self._wait_for(pattern)

    def _wait_for(self, pattern: str) -> re.Match[str]:
        until = time.monotonic() + 60
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

    def connect(self) -> socket.socket:
        """A bare connection."""
        return self._closing.enter_context(socket.create_connection(self.address, timeout=60))

    def post(self, *parts: tuple[str, Any], **options: Any) -> httpx.Response:
        """Send form parts in this order: a str is a text field, bytes are a file."""
        files = [(name, (None, value) if isinstance(value, str) else ("x", value)) for name, value in parts]
        return self.http.post("/v1/audio/transcriptions", files=files, **options)

    def engine(self, model: str) -> dict[str, int]:
        """The counters of its engine."""
        counters: dict[str, int] = self.http.get("/health").json()["x_asr"]["models"][model]["engine"]
        return counters

    def wait_for_engine(self, model: str, **counters: int) -> dict[str, int]:
        """Until its counters have these values; all of them."""
        until = time.monotonic() + 60
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


def wav(text: str) -> bytes:
    """``text`` in tones, as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(tones.RATE)
        output.writeframes((tones.speak(text) * 32767).astype(np.int16).tobytes())
    return file.getvalue()


@pytest.fixture(scope="session", name="wav")
def wav_fixture() -> Callable[[str], bytes]:
    return wav


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start servers, which end with the session."""
    site = tmp_path_factory.mktemp("site")
    write_distribution(site, "asr-fake", {}, {"fake": "asr_core.testing.fake"})
    write_distribution(site, "asr-echo", {"asr_echo": ECHO}, {"echo": "asr_echo"})
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "ASR_CORE_PLUGINS_ALLOW": "asr-fake,asr-echo"}
    with ExitStack() as stack:

        def start(*arguments: str) -> Server:
            server = Server(tmp_path_factory.mktemp("server"), environment, *arguments)
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture(scope="session")
def server(start: Callable[..., Server]) -> Server:
    """A server with both models."""
    return start("--model", "fake", "--model", "echo")
