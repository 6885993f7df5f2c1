"""A server that is sent what nobody should send, and what must be true of every answer and of the server afterwards."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
from attrs import Factory, frozen
from hypothesis import HealthCheck, settings

from asr_core.testing import tones
from asr_core.testing.distributions import write_distribution
from asr_core.testing.server import Server

CASES = "ASR_CORE_FUZZ_CASES"
"""Of each test; ``nox -s fuzz`` asks for more, and for others each time."""

settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get(CASES, "120")),
    derandomize=CASES not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

ANSWER_S = 30.0
"""Within which every request is answered; the server's own limits are shorter."""

LIMITS = {
    "--idle-timeout": 0.5,
    "--upload-timeout": 0.5,
    "--request-timeout": 20,
    "--max-decode-seconds": 10,
    "--max-seconds": 60,
}

TEXT = "A, odd, A"

EVERY = 100
"""Cases between two looks at the server's memory."""

POOLED = 8
"""Threads that pools may still grow by, and connections that may just be closing."""

FRUGAL = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""Makes glibc give back what is freed: a lying header costs FFmpeg 130 MiB for a moment, and glibc would keep them."""

GROWTH_KIB = 96 * 1024
"""Of memory, over any number of cases: heaps of threads grow in steps, and then stay."""


def wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, tones.speak(TEXT), tones.RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


@frozen(eq=False)
class Target:
    """The server, how often it gave which answer, and its memory in KiB every so many cases."""

    server: Server
    answers: Counter[int | str] = Factory(Counter)
    memory: list[int] = Factory(list)
    good: bytes = Factory(wav)

    def send(self, request: bytes, *, stay: bool = True) -> tuple[int, str, bytes]:
        """Status, media type and body of the answer to these bytes; a client that does not ``stay`` gets none.

        Nor does one whose request ends early, or is no HTTP: status 0.
        """
        with socket.create_connection(self.server.address, timeout=ANSWER_S) as connection:
            answer = http.client.HTTPResponse(connection, method="POST")
            try:
                connection.sendall(request)
                if not stay:
                    return self._counted(0, "", b"")
                answer.begin()
                return self._counted(answer.status, answer.headers.get_content_type(), answer.read())
            except (ConnectionError, http.client.BadStatusLine):
                return self._counted(0, "", b"")
            finally:
                answer.close()

    def upload(self, file: bytes, *parts: tuple[str, str]) -> tuple[int, str, bytes]:
        """The answer to a good form with ``file``."""
        answer = self.server.post(("model", "fake"), *parts, ("file", file), timeout=ANSWER_S)
        return self._counted(answer.status_code, answer.headers["content-type"].partition(";")[0], answer.content)

    def _counted(self, status: int, media_type: str, body: bytes) -> tuple[int, str, bytes]:
        self.answers[status or "none"] += 1
        if self.answers.total() % EVERY == 0:
            self.memory.append(self.status("VmRSS"))
        return status, media_type, body

    def status(self, key: str) -> int:
        """A number of its /proc/PID/status: VmRSS and VmHWM in KiB."""
        text = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(key)))

    def held(self) -> dict[str, int]:
        """How many threads and open files it has."""
        return {name: len(os.listdir(f"/proc/{self.server.process.pid}/{name}")) for name in ("task", "fd")}

    def check_unharmed(self, before: dict[str, int]) -> None:
        """It still answers right, and nothing is left of what it was sent."""
        engine = self.server.wait_for_engine("fake", running=0, queued=0)
        status, _, body = self.upload(self.good)
        assert (status, json.loads(body)["text"]) == (200, TEXT)
        most = {name: count + POOLED for name, count in before.items()}
        until = time.monotonic() + ANSWER_S
        while (now := self.held()) != {name: min(now[name], most[name]) for name in now}:
            assert time.monotonic() < until, f"{before} became {now}"
            time.sleep(0.1)
        report = f"{self.answers.total()} cases: {dict(self.answers)}, engine {engine}, {before} became {now}"
        print(f"\n{report}, KiB of memory every {EVERY} cases: {self.memory}, at most {self.status('VmHWM')}")
        assert self.memory[-1] - self.memory[0] < GROWTH_KIB
        assert "Traceback" not in self.server.output


def judge(status: int, media_type: str, body: bytes) -> None:
    """An answer is a result, or a refusal in the envelope, and never a failure of ours."""
    assert status < 500 or status in (503, 504), body
    if status >= 400:
        assert media_type == "application/json"
        judge_error(json.loads(body))
    elif media_type == "application/json":
        assert isinstance(json.loads(body)["text"], str)
    elif media_type == "text/event-stream":
        *events, last = [json.loads(line.removeprefix("data: ")) for line in body.decode().split("\n\n") if line]
        assert all(event["type"].startswith("transcript.text.") for event in events)
        if "error" in last:
            judge_error(last)
        else:
            assert last["type"] == "transcript.text.done"


def judge_error(body: dict[str, Any]) -> None:
    error = body["error"]
    assert list(error) == ["message", "type", "param", "code", "x_asr"]
    assert error["message"]
    assert error["code"] != "internal_error"
    assert error["x_asr"]["layer"]


@pytest.fixture(scope="session", name="judge")
def judge_fixture() -> Any:
    return judge


@pytest.fixture(scope="session")
def fuzzing() -> settings:
    return settings.get_profile("fuzz")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server with the fake model that must be as before when the module is through with it."""
    site = tmp_path_factory.mktemp("site")
    write_distribution(site, "asr-fake", {}, {"fake": "asr_core.testing.fake"})
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **FRUGAL, "PYTHONPATH": path, "ASR_CORE_PLUGINS_ALLOW": "asr-fake"}
    limits = [str(word) for option in LIMITS.items() for word in option]
    server = Server(tmp_path_factory.mktemp("server"), environment, "--model", "fake", *limits)
    try:
        target = Target(server)
        for _ in range(EVERY):
            target.upload(target.good)
        before = target.held()
        yield target
        target.check_unharmed(before)
    finally:
        server.close()
