"""What everybody hears: five short clips of a real voice over and over, and one long read."""

from __future__ import annotations

import json
from pathlib import Path

import soundfile
from attrs import field, frozen

from asr_core.bench.manifest import read_manifest
from asr_core.bench.sounds import Sound, open_sounds

from ..quality.corpus import CACHE, LIBRIVOX, beginning, lay_out, read_text, uniform
from ..quality.voice import RATE, speak

LANGUAGE = "en"
"""As the manifest of the clips has it; told to everybody, so that nobody spends a step on finding out."""

LONG_S = 220.0

SENTENCES = 80
"""More than are said in so long; the voice need not read the rest."""


@frozen(eq=False)
class Set:
    """Sounds, how many requests a round makes of them, and how many callers there are in turn."""

    name: str
    manifest: Path
    requests: int
    callers: tuple[int, ...]
    sounds: tuple[Sound, ...] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "sounds", open_sounds(read_manifest(self.manifest)))


def short(requests: int) -> Set:
    """The clips, at 1, 4 and 16 callers."""
    return Set("short", LIBRIVOX.with_name("librivox.jsonl"), requests, (1, 4, 16))


def long(directory: Path) -> Set:
    """The beginning of the read, whole sentences, one request at a time."""
    texts = read_text()[:SENTENCES]
    read = lay_out("natural", list(zip(texts, speak(texts, CACHE), strict=True)), uniform(0.3, 0.8, 1))
    assert read.seconds > LONG_S, "too few sentences"
    sound = beginning(read, LONG_S)
    path = directory / "long.wav"
    soundfile.write(path, sound.samples, RATE, subtype="PCM_16")
    text = " ".join(sentence.text for sentence in sound.sentences)
    manifest = directory / "long.jsonl"
    manifest.write_text(json.dumps({"path": path.name, "language": LANGUAGE, "reference": text}))
    return Set("long", manifest, 1, (1,))
