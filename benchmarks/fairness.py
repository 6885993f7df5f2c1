"""Short requests alone, and while a very long upload is worked on by the same server.

``python benchmarks/fairness.py --seconds 3600`` reports how long short requests take, one at a time and four at once,
in both cases, and how far the long one came meanwhile. Exits with 1 when the short ones' 95th percentile grew beyond
``--max-ratio``, or the long one stood still.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile

from asr_core.bench.sounds import unique, wav
from asr_core.testing.server import TRANSCRIPTIONS, Server

RATE = 16_000
SPEECH = Path(__file__).parents[1] / "tests" / "data" / "librivox"
LARGEST = 4 * 3600 * RATE * 2


def flac(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def speech(seconds: float) -> np.ndarray:
    """The clips one after another, over and over, half a second apart."""
    clips = [soundfile.read(path, dtype="float32")[0] for path in sorted(SPEECH.glob("*.wav"))]
    round_of = np.concatenate([part for clip in clips for part in (clip, np.zeros(RATE // 2, np.float32))])
    return np.resize(round_of, round(seconds * RATE))


class Upload:
    """A long streamed request; ``words`` have come so far."""

    words = 0
    ended = False

    async def run(self, client: httpx.AsyncClient, model: str, sound: bytes) -> None:
        form = {"model": model, "stream": "true"}
        async with client.stream("POST", TRANSCRIPTIONS, data=form, files={"file": sound}) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                event = json.loads(line.removeprefix("data: ") or "{}")
                assert "error" not in event, event
                self.words += event.get("delta", "").count(" ")
        self.ended = True


@asynccontextmanager
async def uploading(client: httpx.AsyncClient, model: str, sound: bytes) -> AsyncIterator[Upload]:
    """From its first words on; it is left where it stands."""
    upload = Upload()
    work = asyncio.create_task(upload.run(client, model, sound))
    while not upload.words and not work.done():
        await asyncio.sleep(0.1)
    yield upload
    if work.done():
        work.result()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def short(client: httpx.AsyncClient, model: str, sounds: Iterator[bytes], at_once: int) -> dict[str, float]:
    """Seconds that requests take of which ``at_once`` are always on their way."""
    seconds: list[float] = []

    async def one_after_another() -> None:
        for sound in sounds:
            begun = time.monotonic()
            answer = await client.post(TRANSCRIPTIONS, data={"model": model}, files={"file": sound})
            answer.raise_for_status()
            seconds.append(time.monotonic() - begun)

    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    p50, p95 = np.percentile(seconds, [50, 95])
    return {"p50": round(float(p50), 3), "p95": round(float(p95), 3)}


async def compare(url: str, options: argparse.Namespace) -> dict[str, Any]:
    model, long = options.model, flac(speech(options.seconds))
    # Of equal ones that come together, the server would encode one.
    clip, seeds = (speech(5.0) * 2**15).astype(np.int16), count()

    def clips(number: int) -> Iterator[bytes]:
        seed = next(seeds)
        return iter([wav(unique(clip, seed, n)) for n in range(number)])

    report: dict[str, Any] = {"model": model, "long_seconds": options.seconds}
    async with httpx.AsyncClient(base_url=url, timeout=3600.0) as client:
        await short(client, model, clips(4), 2)
        for at_once in (1, 4):
            alone = await short(client, model, clips(options.requests), at_once)
            async with uploading(client, model, long) as upload:
                sounds = clips(options.requests)
                words, begun = upload.words, time.monotonic()
                beside = await short(client, model, sounds, at_once)
                pace = (upload.words - words) / (time.monotonic() - begun)
            ratio = round(beside["p95"] / alone["p95"], 2)
            report[f"at_once_{at_once}"] = {
                "alone": alone,
                "beside": beside,
                "p95_ratio": ratio,
                "long_words_per_second": round(pace, 2),
                "long_ended": upload.ended,
            }
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="whisper-base")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of the long upload")
    parser.add_argument("--requests", type=int, default=60, help="short ones, in each of four rounds")
    parser.add_argument("--max-ratio", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        arguments = ("--model", options.model, "--max-bytes", str(LARGEST), "--request-timeout", "7200")
        server = Server(Path(directory), dict(os.environ), *arguments)
        try:
            report = asyncio.run(compare(server.url, options))
        finally:
            server.close()
    print(json.dumps(report, indent=2))
    rounds = [report[name] for name in ("at_once_1", "at_once_4")]
    # A long one that ended left the short ones alone, which measures nothing.
    good = all(
        each["p95_ratio"] <= options.max_ratio and each["long_words_per_second"] > 0 and not each["long_ended"]
        for each in rounds
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
