"""Five hundred requests of every kind against one server, and what is left afterwards.

Run by ``nox -s soak``; ``--seconds 120 --at-once 32`` is a crowd for two minutes. A third of the requests is plain, a
third streamed, the rest bad or leaving in the middle. Memory counts from the level after a warm-up; the slope is a
least-squares line over samples taken every ten requests. Exits with 1 when an answer was wrong or something leaked:
memory beyond what the flags allow, a slot, a waiting request, a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile

from asr_core.testing import tones
from asr_core.testing.distributions import write_distribution

WARM_UP = 60
EVERY = 10


def wav(text: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, tones.speak(text), tones.RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


class Server:
    """A server process and what the kernel says of it."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url

    def status(self, key: str) -> int:
        """A number of /proc/PID/status: VmRSS in KiB, Threads."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(key)))

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@asynccontextmanager
async def serving(model: str) -> AsyncIterator[Server]:
    """The server with ``model`` and, always, the fake model."""
    with tempfile.TemporaryDirectory() as directory:
        write_distribution(Path(directory), "asr-fake", {}, {"fake": "asr_core.testing.fake"})
        path = os.pathsep.join([directory, *filter(None, [os.environ.get("PYTHONPATH")])])
        models = ["--model", "fake"] + (["--model", model] if model != "fake" else [])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "asr_core.cli", "serve", "--port", "0", "--idle-timeout", "1", *models,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert process.stdout
        while b"serving on" not in (line := await process.stdout.readline()):
            assert line, "the server did not start"
        yield Server(process, line.decode().split()[-1])
        process.terminate()
        assert await process.wait() == 0


EXPECTED = {"plain": "200", "stream": "200", "bad": "400", "garbage": "400"}
"""How each kind of request ends; who leaves may have been answered before."""


async def one(client: httpx.AsyncClient, model: str, sound: bytes, kind: str, texts: set[str]) -> str:
    """Make one request and say how it went; ``texts`` gets what was recognised."""
    data = {"model": model, "stream": "true" if "stream" in kind else "false"}
    if kind == "bad":
        data["temperature"] = "hot"
    elif "leave" in kind and model == "fake":
        data["behaviour"] = "slow"
    try:
        timeout = 0.3 if "leave" in kind else 120.0
        files = {"file": sound if kind != "garbage" else os.urandom(4000)}
        answer = await client.post("/v1/audio/transcriptions", data=data, files=files, timeout=timeout)
        await answer.aread()
    except httpx.TimeoutException:
        return f"{kind}: left"
    if answer.status_code == 200:
        texts.add(text_of(answer, "stream" in kind))
    return f"{kind}: {answer.status_code}"


def text_of(answer: httpx.Response, stream: bool) -> str:
    """The whole text, by the last event of a stream."""
    body = answer.text.rstrip().rpartition("data: ")[2] if stream else answer.text
    text: str = json.loads(body)["text"]
    return text


def rounds(requests: int, seconds: float | None, at_once: int) -> Iterator[int]:
    """Requests made before each round: the warm-up and then as many as were asked for, or for as long."""
    end, done = None, 0
    while done < WARM_UP + requests if end is None else time.monotonic() < end:
        yield done
        done += at_once
        if seconds is not None and end is None and done >= WARM_UP:
            end = time.monotonic() + seconds


async def soak(model: str, sound: bytes, requests: int, seconds: float | None, at_once: int) -> dict[str, Any]:
    kinds = ["plain", "stream"] * 4 + ["bad", "garbage", "leave", "leave stream"]
    order, outcomes, memory, texts = random.Random(0), Counter[str](), [], set[str]()
    async with serving(model) as server, httpx.AsyncClient(base_url=server.url) as client:
        level = threads = files = 0
        for done in rounds(requests, seconds, at_once):
            batch = [one(client, model, sound, order.choice(kinds), texts) for _ in range(at_once)]
            outcomes.update(await asyncio.gather(*batch))
            if done < WARM_UP:
                level, threads, files = server.status("VmRSS"), server.status("Threads"), server.files()
            elif done % EVERY < at_once:
                memory.append((done, server.status("VmRSS") - level))
        # As long as the server keeps the sockets of clients that are gone.
        await asyncio.sleep(3)
        (await client.get("/ready")).raise_for_status()
        engine = (await client.get("/health")).json()["x_asr"]["models"][model]["engine"]
        slope = float(np.polyfit(*zip(*memory, strict=True), 1)[0])
        return {
            "model": model,
            "outcomes": dict(outcomes),
            "texts": len(texts),
            "level_kib": level,
            "above_level_kib": memory[-1][1],
            "slope_kib_per_request": round(slope, 2),
            "threads": [threads, server.status("Threads")],
            "files": [files, server.files()],
            "engine": engine,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="fake")
    parser.add_argument("--file", help="speech for models other than the fake one")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seconds", type=float, help="in place of a number of requests")
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--max-slope-kib", type=float, default=20.0)
    options = parser.parse_args()
    sound = Path(options.file).read_bytes() if options.file else wav("a sentence, over and over, five hundred times")
    report = asyncio.run(soak(options.model, sound, options.requests, options.seconds, options.at_once))
    print(json.dumps(report, indent=2))
    return 0 if clean(report, options.max_slope_kib) else 1


def clean(report: dict[str, Any], max_slope_kib: float) -> bool:
    """Whether no answer was wrong and nothing was left.

    A pool may still grow by a thread, a keep-alive connection by a file.
    """
    ends = [outcome.split(": ") for outcome in report["outcomes"]]
    wrong = report["texts"] != 1 or any(EXPECTED.get(kind, end) != end for kind, end in ends)
    (threads, threads_after), (files, files_after) = report["threads"], report["files"]
    waiting = report["engine"]["running"] + report["engine"]["queued"]
    grown = threads_after > threads + 2 or files_after > files + 2
    return report["slope_kib_per_request"] <= max_slope_kib and not waiting and not grown and not wrong


if __name__ == "__main__":
    sys.exit(main())
