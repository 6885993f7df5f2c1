"""A library in a process of its own: ``python -m benchmarks.peers.worker NAME WEIGHTS``.

It writes a line when it is ready, with MiB after imports, and then answers each line of its input, a round's
description, with what became of the requests.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import wave
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from asr_core.bench.drive import Outcome, Reply, Request, Target, drive, prepare
from asr_core.bench.manifest import read_manifest
from asr_core.bench.memory import resident
from asr_core.bench.sounds import Sound, open_sounds

from .libraries import LIBRARIES, Hear
from .weights import Weights


def target(hear: Hear, threads: bool) -> Target:
    """Callers at once, or in turn."""
    turn = Lock()

    def ask(request: Request) -> Reply:
        samples, language = _samples(request.wav), request.sound.line.language
        if threads:
            return Reply(hear(samples, language))
        with turn:
            return Reply(hear(samples, language))

    return ask


def _samples(wav: bytes) -> npt.NDArray[np.float32]:
    with wave.open(io.BytesIO(wav)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return samples.astype(np.float32) / 32768


@cache
def sounds_of(manifest: str) -> tuple[Sound, ...]:
    return open_sounds(read_manifest(Path(manifest)))


def play(ask: Target, manifest: str, count: int, callers: int, seed: int, first: int) -> dict[str, Any]:
    """One round in JSON's types; a sound is its place in the manifest."""
    sounds = sounds_of(manifest)
    done = drive(ask, prepare(sounds, count, seed, first), callers)
    return {
        "seconds": done.seconds,
        "cpu": done.cpu,
        "outcomes": [_outcome(outcome, sounds) for outcome in done.outcomes],
    }


def _outcome(outcome: Outcome, sounds: tuple[Sound, ...]) -> dict[str, Any]:
    return {
        "sound": sounds.index(outcome.sound),
        "seconds": outcome.seconds,
        "text": outcome.text,
        "failure": outcome.failure,
    }


def main() -> None:
    name, directory = sys.argv[1:]
    # Libraries write to standard output what they like; the answers have a channel of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    library = LIBRARIES[name]
    for module in library.imports:
        importlib.import_module(module)
    level = resident()
    ask = target(library.load(Weights(Path(directory))), library.threads)
    print(json.dumps({"level": level}), file=answers)
    for line in sys.stdin:
        print(json.dumps(play(ask, **json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
