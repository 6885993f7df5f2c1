"""Word times of real speech against OpenAI's own, on the same weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from whisper.model import Whisper
from whisper.timing import find_alignment
from whisper.tokenizer import get_tokenizer

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.types import Samples, Transcript
from asr_whisper.frontend import Frontend
from asr_whisper.words import WITHOUT_SPACES

from .conftest import LIBRIVOX, MULTILINGUAL, features

READINGS = sorted(LIBRIVOX.glob("*.wav"))
SPOKEN = sorted(MULTILINGUAL.glob("*/*.wav"))
# Where OpenAI's features, padded before the transform, give the words ours give.
ALIKE = [MULTILINGUAL / f"{name}.wav" for name in ("en/quick_brown_fox", "es/conteo", "it/conteggio", "zh/jishu")]

# "1,2,3,4" is a word per number, with no space between.
COUNTED = ("counting", "ginti")


@pytest.fixture(autouse=True)
def ignore_unclosed_files() -> Iterator[None]:
    """OpenAI's package leaves its vocabulary open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def check(transcript: Transcript, *, spaces: bool = True) -> None:
    """Words that are the text, of some length, in order and inside the audio."""
    texts = [word.text for word in transcript.words]
    if spaces:
        assert " ".join(texts) == " ".join(transcript.text.split())
    else:
        assert "".join("".join(texts).split()) == "".join(transcript.text.split())
    bounds = [bound for word in transcript.words for bound in (word.start_ms, word.end_ms)]
    assert bounds == sorted(bounds)
    assert all(word.start_ms < word.end_ms for word in transcript.words)
    assert bounds[0] >= 0
    assert bounds[-1] <= 1000 * transcript.duration


def places(words: list[tuple[str, float]]) -> dict[int, float]:
    """A time per word by how many letters come before it: who splits or punctuates otherwise can be compared."""
    found, before = {}, 0
    for text, seconds in words:
        found[before] = seconds
        before += sum(letter.isalnum() for letter in text)
    return found


def differences(ours: dict[int, float], theirs: dict[int, float]) -> list[float]:
    shared = ours.keys() & theirs.keys()
    assert len(shared) >= 0.9 * len(ours)
    return sorted(abs(ours[place] - theirs[place]) for place in shared)


@pytest.mark.parametrize("path", [*READINGS, *ALIKE], ids=named)
def test_words_are_within_100_ms_of_openais(base: Transcriber, openai_base: Whisper, path: Path) -> None:
    transcript = base.transcribe(path, times=["segment", "word"])
    heard: dict[str, Any] = openai_base.transcribe(
        audio.load(path, 16_000).samples.copy(),
        fp16=False,
        condition_on_previous_text=False,
        word_timestamps=True,
        language=transcript.language,
    )
    words = [word for segment in heard["segments"] for word in segment["words"]]
    for bound in ("start", "end"):
        ours = places([(word.text, getattr(word, f"{bound}_ms") / 1000) for word in transcript.words])
        apart = differences(ours, places([(word["word"], word[bound]) for word in words]))
        assert np.median(apart) <= 0.1


@pytest.mark.parametrize("path", sorted(MULTILINGUAL.glob("*/pangram*.wav")), ids=named)
def test_tokens_are_heard_where_openais_alignment_hears_them(
    base: Transcriber, openai_base: Whisper, frontend: Frontend, path: Path
) -> None:
    """The same tokens from the same features, before anybody's mending of words."""
    samples = audio.load(path, 16_000).samples
    transcript = base.transcribe(path, times=["word"])
    tokens = [token for segment in transcript.segments for token in segment.tokens]
    tokenizer = get_tokenizer(True, language=transcript.language, task="transcribe")
    theirs = find_alignment(openai_base, tokenizer, tokens, features(frontend, samples)[0], len(samples) // 160)
    ours = places([(word.text, word.start_ms / 1000) for word in transcript.words])
    apart = differences(ours, places([(one.word, float(one.start)) for one in theirs]))
    assert np.median(apart) <= 0.001
    assert np.quantile(apart, 0.8) <= 0.021  # a word without length was given some, a mark before a word is not its own


@pytest.mark.parametrize("path", [*READINGS, *SPOKEN], ids=named)
def test_words_are_the_text_inside_the_clip(base: Transcriber, path: Path) -> None:
    transcript = base.transcribe(path, times=["word"])
    check(transcript, spaces=transcript.language not in WITHOUT_SPACES and path.stem not in COUNTED)


def test_words_of_a_clip_that_is_resumed(windows: Transcriber, reading: Samples) -> None:
    """Cut off in mid-sentence: the second clip's words follow the first one's, on the clock of the whole audio."""
    cut = np.concatenate([reading, reading])[: 28 * 16_000]
    transcript = windows.transcribe(cut, times=["segment", "word"])
    assert len(transcript.coverage) == 2
    check(transcript)
    seam = transcript.coverage[0].end_sample / 16
    parts = [[word for word in transcript.words if (word.start_ms >= seam) == later] for later in (False, True)]
    assert all(parts)
    assert parts[0][-1].end_ms <= seam
    assert transcript.segments[-1].text.endswith(" ".join(word.text for word in parts[1]))


def test_words_of_a_translation(base: Transcriber) -> None:
    for name in ("ja/kazoeru", "fr/pangrama"):
        transcript = base.transcribe(MULTILINGUAL / f"{name}.wav", task="translate", times=["word"])
        assert len(transcript.words) > 1
        check(transcript)


def test_silence_has_no_words(base: Transcriber) -> None:
    assert base.transcribe(np.zeros(32_000, np.float32), times=["word"]).words == ()


@pytest.mark.parametrize("path", READINGS, ids=named)
def test_words_change_nothing_else(base: Transcriber, path: Path) -> None:
    for times in ([], ["segment"]):
        plain, with_words = base.transcribe(path, times=times), base.transcribe(path, times=[*times, "word"])
        assert plain.words == ()
        assert evolve(with_words, words=()) == plain


def test_words_with_a_prompt_before(base: Transcriber) -> None:
    """The text that came before is no part of what is aligned."""
    path = LIBRIVOX / "0870.wav"
    transcript = base.transcribe(path, times=["word"], prompt="It was a strange request, for he was not rich.")
    check(transcript)
    alone = {word.text: word for word in base.transcribe(path, times=["word"]).words}
    shared = [(word, alone[word.text]) for word in transcript.words if word.text in alone]
    assert len(shared) >= 15
    assert np.median([abs(one.start_ms - other.start_ms) for one, other in shared]) <= 20


def test_candidates_hold_detection(base: Transcriber) -> None:
    path = MULTILINGUAL / "es" / "pangrama.wav"
    assert base.transcribe(path, languages=["en", "es"]).language == "es"
    assert base.transcribe(path, languages=["ja", "sw"]).language in ("ja", "sw")


def test_an_english_only_model_has_words() -> None:
    with load("whisper-tiny.en", device="cpu", dtype="float32") as tiny:
        transcript = tiny.transcribe(LIBRIVOX / "0880.wav", times=["word"])
    check(transcript)
    assert [word.text for word in transcript.words][:3] == ["He", "was", "not"]
