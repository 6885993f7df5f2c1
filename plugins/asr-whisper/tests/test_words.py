"""Real speech, real weights: the right words, and the same tokens as the reference implementations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jiwer
import pytest
from transformers import WhisperForConditionalGeneration

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.types import Transcript
from asr_whisper.frontend import Frontend

from .conftest import MULTILINGUAL, features

CLIPS = sorted(MULTILINGUAL.glob("*/*.wav"))


def tokens(transcript: Transcript) -> list[int]:
    return [token for segment in transcript.segments for token in segment.tokens]


def test_at_most_one_word_is_wrong(
    base: Transcriber, librivox: dict[Path, str], normalise: Callable[[str], str]
) -> None:
    said = [normalise(words) for words in librivox.values()]
    heard = [normalise(base.transcribe(path).text) for path in librivox]
    measures = jiwer.process_words(said, heard)
    assert measures.substitutions + measures.insertions + measures.deletions <= 1


def test_all_multilingual_clips_are_there() -> None:
    assert len(CLIPS) == 27


@pytest.mark.usefixtures("greedy")
@pytest.mark.parametrize("path", CLIPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_tokens_are_those_of_generate(
    base: Transcriber, transformers_base: WhisperForConditionalGeneration, frontend: Frontend, path: Path
) -> None:
    transcript = base.transcribe(path)
    mel = features(frontend, audio.load(path, 16_000).samples)
    language = frontend.special.languages[transcript.language]
    assert language == int(transformers_base.detect_language(mel)[0])
    expected = transformers_base.generate(mel, language=transcript.language, task="transcribe", do_sample=False)
    assert tokens(transcript) == [token for token in expected[0].tolist() if token != frontend.special.eot]


@pytest.mark.usefixtures("greedy")
def test_timed_tokens_are_those_of_generate(
    base: Transcriber,
    transformers_base: WhisperForConditionalGeneration,
    frontend: Frontend,
    librivox: dict[Path, str],
) -> None:
    for path in librivox:
        mel = features(frontend, audio.load(path, 16_000).samples)
        expected = transformers_base.generate(
            mel, language="en", task="transcribe", do_sample=False, return_timestamps=True, return_segments=True
        )["segments"][0][0]["result"].tolist()
        special = frontend.special
        timed = [token for token in expected if token < special.eot or token >= special.timestamp_begin]
        assert tokens(base.transcribe(path, language="en", times=["segment"])) == timed
