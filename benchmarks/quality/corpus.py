"""Speech with its reference: what is said, and when each sentence of it begins and ends."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
from attrs import frozen

from .voice import RATE, speak

HERE = Path(__file__).parent
LIBRIVOX = HERE.parents[1] / "tests" / "data" / "librivox"

CACHE = Path(tempfile.gettempdir()) / "asr-core-quality"
"""The voice takes minutes for a read, so what it said is kept."""

ROOM = 3e-4
"""RMS of what a quiet room adds, 70 dB below full scale."""

Unit = Literal["word", "letter"]


@frozen
class Sentence:
    """What is said between two times in seconds."""

    start: float
    end: float
    text: str


@frozen(eq=False)
class Sound:
    """Samples of shape [n] at 16 kHz and all that is said in them, in order."""

    name: str
    samples: np.ndarray
    sentences: tuple[Sentence, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE


@frozen(eq=False)
class Set:
    """Sounds that are measured together, all at once if ``at_once``; errors are counted per ``unit``.

    ``long`` says that it is a read of many minutes, to which the gates apply.
    """

    name: str
    sounds: tuple[Sound, ...]
    unit: Unit = "word"
    at_once: bool = False
    long: bool = False


Gap = Callable[[int], float]
"""Seconds of silence before sentence i."""


def uniform(low: float, high: float, seed: int) -> Gap:
    """Gaps drawn between two lengths, the same each time."""
    order = np.random.default_rng(seed)
    return lambda i: float(order.uniform(low, high))


def lay_out(name: str, spoken: Sequence[tuple[str, np.ndarray]], gap: Gap, room: float = ROOM) -> Sound:
    """Sentences one after another, each behind its gap, in a room that is never quite silent."""
    parts, sentences, at = [], [], 0
    for i, (text, samples) in enumerate(spoken):
        parts += [np.zeros(round(gap(i) * RATE), np.float32), samples]
        start = at + len(parts[-2])
        at = start + len(samples)
        sentences.append(Sentence(start / RATE, at / RATE, text))
    whole = np.concatenate(parts)
    noise = np.random.default_rng(len(whole)).standard_normal(len(whole), np.float32)
    return Sound(name, whole + np.float32(room) * noise, tuple(sentences))


def with_noise(sound: Sound, decibels: float) -> Sound:
    """The same with white and pink noise, half of the power each, ``decibels`` below the speech."""
    count, order = len(sound.samples), np.random.default_rng(7)
    white = order.standard_normal(count)
    spectrum = np.fft.rfft(order.standard_normal(count))
    pink = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), count)
    noise = white / white.std() + pink / pink.std()
    power = float(np.mean(sound.samples**2)) / 10 ** (decibels / 10)
    samples = sound.samples + np.sqrt(power / 2) * noise
    return Sound(f"{sound.name}-noise", samples.astype(np.float32), sound.sentences)


def read_text() -> list[str]:
    """The sentences of the long read."""
    return [line for line in (HERE / "read.txt").read_text().splitlines() if line]


def long_reads(cache: Path, minutes: float) -> list[Set]:
    """The read with natural gaps, hardly any, in noise, and with digital silence of 40 s every 3 minutes or so."""
    texts = read_text()
    spoken = list(zip(texts, speak(texts, cache), strict=True))
    lengths = np.cumsum([len(samples) / RATE + 0.55 for _, samples in spoken])
    spoken = spoken[: int(np.searchsorted(lengths, 60 * minutes)) + 1]
    natural = lay_out("natural", spoken, uniform(0.3, 0.8, 1))
    tight = lay_out("tight", spoken, uniform(0.0, 0.05, 2))
    usual = uniform(0.3, 0.8, 3)
    silences = lay_out("silences", spoken, lambda i: 40.0 if i % 30 == 20 else usual(i), room=0.0)
    sounds = [natural, tight, with_noise(natural, 10.0), silences]
    return [Set(sound.name, (sound,), long=True) for sound in sounds]


def librivox() -> Set:
    """Five short clips of a real voice, one after another."""
    lines = (LIBRIVOX / "transcripts.txt").read_text().splitlines()
    sounds = (_clip(LIBRIVOX / f"{name}.wav", text) for name, text in (line.split(" ", 1) for line in lines))
    return Set("librivox", tuple(sounds))


def _clip(path: Path, text: str) -> Sound:
    samples, _ = soundfile.read(path, dtype="float32")
    return Sound(path.stem, samples, (Sentence(0.0, len(samples) / RATE, text),))


def short_clips(language: str) -> list[tuple[str, np.ndarray]]:
    """The short clips of pytest-audioeval in ``language``, each with its text, but the one that counts to ten.

    Numbers are written in figures or in words, and the normaliser for all languages does not know them.
    """
    audio = metadata.distribution("pytest-audioeval").locate_file("pytest_audioeval/samples/audio")
    paths = sorted((Path(str(audio)) / language).glob("*.wav"))
    texts = [path.with_suffix(".txt").read_text().strip() for path in paths]
    counting = {"en": "One two", "zh": "一二"}[language]
    return [
        (text, soundfile.read(path, dtype="float32")[0])
        for path, text in zip(paths, texts, strict=True)
        if not text.startswith(counting)
    ]


def chinese(rounds: int = 9) -> Set:
    """Chinese clips one after another, more than a window of 30 s."""
    sound = lay_out("chinese", short_clips("zh") * rounds, uniform(0.3, 0.8, 4))
    return Set("chinese", (sound,), unit="letter")


def alternating(rounds: int = 4) -> Set:
    """English clips and Chinese ones in turn: a language lasts five seconds."""
    spoken = (short_clips("en") + short_clips("zh")) * rounds
    return Set("alternating", (lay_out("alternating", spoken, uniform(0.3, 0.8, 5)),), unit="letter")


def mixed(read: Sound, clips: Set, seconds: float = 150.0) -> Set:
    """A stretch of a long read and, at the same time, short clips."""
    return Set("mixed", (beginning(read, seconds), *clips.sounds), at_once=True)


def beginning(sound: Sound, seconds: float) -> Sound:
    """Its whole sentences within so many seconds."""
    sentences = tuple(sentence for sentence in sound.sentences if sentence.end < seconds)
    return Sound(f"{sound.name}-{seconds:g}", sound.samples[: round((sentences[-1].end + 0.3) * RATE)], sentences)


def corpus(cache: Path, minutes: float) -> list[Set]:
    """Every set."""
    reads, clips = long_reads(cache, minutes), librivox()
    return [*reads, clips, chinese(), alternating(), mixed(reads[0].sounds[0], clips)]
