"""A file of four hours: the memory it takes, and whether its subtitles are in order and right past the third hour.

``python -m benchmarks.longfile --seconds 14400`` repeats the read of the quality benchmark into a file and transcribes
that as srt, with the heap of ``asr-core transcribe``. Memory counts from the level after loading. Exits with 1 when the
peak is above ``--max-mib``, a cue is out of order, or text or times of the last quarter are off.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from attrs import frozen

from asr_core import formats, load
from asr_core.cli._heap import keep_heap

from .quality.corpus import CACHE, Sentence, Sound, beginning, long_reads
from .quality.score import score
from .quality.voice import RATE

CUE = re.compile(r"^\d+\n(\S+) --> (\S+)\n(.*)$", re.MULTILINE)

MAX_DIFFERENCE = 0.5
"""Points by which the last quarter may have more errors than the whole."""

MAX_DRIFT_S = 0.5
"""By which cues of the last quarter may, in the median, begin beside the beginning of a sentence."""


@frozen
class Cue:
    """Start and end in seconds."""

    start: float
    end: float
    text: str


def write(read: Sound, seconds: float, path: Path) -> list[Sentence]:
    """The read over and over, a second apart, until there is no room for its first minute; what is said in it."""
    said: list[Sentence] = []
    with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16") as file:
        while (room := seconds - file.tell() / RATE - 1.0) > 60.0:
            start = file.tell() / RATE
            part = read if read.seconds <= room else beginning(read, room)
            file.write(np.append(part.samples, np.zeros(RATE, np.float32)))
            said += [Sentence(start + each.start, start + each.end, each.text) for each in part.sentences]
    return said


def memory(key: str) -> float:
    """VmRSS or VmHWM, the highest it was, of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(key))) / 1024


def read_cues(srt: str) -> list[Cue]:
    return [Cue(seconds(start), seconds(end), text) for start, end, text in CUE.findall(srt)]


def seconds(stamp: str) -> float:
    hours, minutes, rest = stamp.split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(rest.replace(",", "."))


def transcribe(model: str, path: Path) -> tuple[str, dict[str, Any]]:
    """The subtitles, and what they took."""
    with load(model, device="cpu") as transcriber:
        level = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the highest level so far is forgotten
        begun = time.monotonic()
        transcript = transcriber.transcribe(path, times=("segment",))
        took = time.monotonic() - begun
    used = {"level_mib": round(level), "above_level_mib": round(memory("VmHWM") - level)}
    return formats.to_srt(transcript), used | {
        "duration": transcript.duration,
        "rtf": round(took / transcript.duration, 3),
    }


def judge(cues: list[Cue], said: list[Sentence]) -> dict[str, Any]:
    """Order, errors of the whole and of the last quarter, and how far cues there begin from sentences."""
    late = said[3 * len(said) // 4 :]
    there = [cue for cue in cues if cue.start > late[0].start - 0.5]
    starts = np.array([sentence.start for sentence in said])
    drift = [float(np.abs(starts - cue.start).min()) for cue in there]
    return {
        "cues": len(cues),
        "in_order": all(a.start <= a.end <= b.start for a, b in pairwise(cues)),
        "errors": round(score(said, " ".join(cue.text for cue in cues), "word").percent, 2),
        "late_from": round(late[0].start, 1),
        "late_errors": round(score(late, " ".join(cue.text for cue in there), "word").percent, 2),
        "late_drift_s": round(float(np.median(drift)), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="whisper-base")
    parser.add_argument("--seconds", type=float, default=14_400.0)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--max-mib", type=float, default=1144.0, help="1.2 GB")
    options = parser.parse_args()
    keep_heap()  # as every command does
    (read,) = long_reads(options.cache, options.seconds / 60)[0].sounds
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "long.wav"
        said = write(read, options.seconds, path)
        srt, report = transcribe(options.model, path)
    report |= judge(read_cues(srt), said)
    print(json.dumps(report, indent=2))
    good = (
        report["above_level_mib"] <= options.max_mib
        and report["in_order"]
        and report["late_errors"] <= report["errors"] + MAX_DIFFERENCE
        and report["late_drift_s"] <= MAX_DRIFT_S
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
