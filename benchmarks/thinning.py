"""What Whisper's thinned-out silence costs and saves: every sentence as a clip, with all of its window and without.

``python -m benchmarks.thinning`` prints errors per hundred words, how many texts are equal, and seconds; three reads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from unittest import mock

from asr_core.api import Transcriber
from asr_core.loading import EngineOptions
from asr_core.plugins import Plugins
from asr_whisper.window import Window

from .quality.corpus import CACHE, Sentence, Set, long_reads
from .quality.score import score
from .quality.voice import RATE

MODEL = "whisper-base"
READS = ("natural", "tight", "natural-noise")
PAD_S = 0.1


@contextmanager
def whole() -> Iterator[None]:
    """Compute every position of every window."""
    with mock.patch.object(Window, "of_frames", lambda frames, context: Window(context, 0)):
        yield


def hear(transcriber: Transcriber, read: Set, sentences: Sequence[Sentence]) -> tuple[list[str], float]:
    (sound,) = read.sounds
    begun = time.monotonic()
    ends = [(int(max(0, one.start - PAD_S) * RATE), int((one.end + PAD_S) * RATE)) for one in sentences]
    texts = [transcriber.transcribe(sound.samples[start:end], language="en").text for start, end in ends]
    return texts, time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=100)
    count = parser.parse_args().sentences
    reads = {read.name: read for read in long_reads(CACHE, 30)}
    with Transcriber(Plugins.discover(), MODEL, EngineOptions()) as transcriber:
        for read in (reads[name] for name in READS):
            sentences = read.sounds[0].sentences[:count]
            thinned, seconds = hear(transcriber, read, sentences)
            with whole():
                full, full_seconds = hear(transcriber, read, sentences)
            rates = [
                reduce(add, (score([one], text, read.unit) for one, text in zip(sentences, texts, strict=True))).percent
                for texts in (thinned, full)
            ]
            equal = sum(one == other for one, other in zip(thinned, full, strict=True))
            print(
                f"{read.name}: thinned {rates[0]:.2f} % in {seconds:.1f} s,"
                f" whole {rates[1]:.2f} % in {full_seconds:.1f} s, {equal} of {len(sentences)} texts equal",
                flush=True,
            )


if __name__ == "__main__":
    main()
