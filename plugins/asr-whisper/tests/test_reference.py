"""OpenAI's own package on the same weights: the same words at the same times."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
from whisper.decoding import DecodingOptions, decode
from whisper.model import Whisper

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.kernels import has_int8
from asr_core.types import Samples
from asr_whisper.frontend import Frontend

from .conftest import MULTILINGUAL, features

HARD = "es", "fr", "hi", "ja"
"""Languages whose pangrams a beam understands otherwise."""


@pytest.fixture(autouse=True)
def ignore_unclosed_files() -> Iterator[None]:
    """OpenAI's package leaves its vocabulary open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def reference(model: Whisper, samples: Samples) -> dict[str, Any]:
    heard: dict[str, Any] = model.transcribe(samples.copy(), fp16=False, condition_on_previous_text=False)
    return heard


def test_words_and_times_are_openais(
    base: Transcriber, openai_base: Whisper, librivox: dict[Path, str], normalise: Callable[[str], str]
) -> None:
    """Its features are padded before the transform, ours after: a comma or a mark may fall otherwise, no word does."""
    for path in librivox:
        heard = reference(openai_base, audio.load(path, 16_000).samples)
        transcript = base.transcribe(path, times=["segment"])
        assert normalise(transcript.text) == normalise(heard["text"])
        assert transcript.language == heard["language"]
        bounds = [(one.start_ms / 1000, one.end_ms / 1000) for one in transcript.segments]
        assert bounds == [pytest.approx((one["start"], one["end"]), abs=0.3) for one in heard["segments"]]


@pytest.mark.skipif(not has_int8(), reason="no products in int8 here")
def test_words_in_int8_are_openais(
    openai_base: Whisper, librivox: dict[Path, str], normalise: Callable[[str], str]
) -> None:
    with load("whisper-base", device="cpu", dtype="int8") as transcriber:
        for path in librivox:
            heard = reference(openai_base, audio.load(path, 16_000).samples)
            assert normalise(transcriber.transcribe(path).text) == normalise(heard["text"])


@pytest.mark.parametrize("seconds", [28.0, 30.0])
def test_the_tail_after_an_early_last_time_is_heard(
    windows: Transcriber, openai_base: Whisper, reading: Samples, normalise: Callable[[str], str], seconds: float
) -> None:
    """Cut off in mid-sentence, the model closes its last segment before the end; the rest must not be lost."""
    cut = np.concatenate([reading, reading])[: round(16_000 * seconds)]
    transcript = windows.transcribe(cut, times=["segment"])
    assert [stretch.state for stretch in transcript.coverage] == ["decoded", "decoded"]
    first, second = transcript.coverage
    assert (first.start_sample, first.end_sample, second.end_sample) == (0, second.start_sample, len(cut))
    heard = reference(openai_base, cut)
    # OpenAI normalises the loudness of the tail by that of the whole: a word may come out otherwise.
    measures = jiwer.process_words(normalise(heard["text"]), normalise(transcript.text))
    assert measures.substitutions + measures.insertions + measures.deletions <= 1
    assert transcript.segments[-1].start_ms / 1000 == pytest.approx(heard["segments"][-1]["start"], abs=0.1)


@pytest.mark.usefixtures("greedy")
def test_texts_of_a_beam_are_openais(
    base: Transcriber, openai_base: Whisper, frontend: Frontend, librivox: dict[Path, str]
) -> None:
    """From the same features, and not what greedy decoding finds of the harder ones."""
    hard = {MULTILINGUAL / language / "pangrama.wav": language for language in HARD}
    for path, language in {**dict.fromkeys(librivox, "en"), **hard}.items():
        mel = features(frontend, audio.load(path, 16_000).samples)[0]
        options = DecodingOptions(beam_size=5, without_timestamps=True, language=language, fp16=False)
        text = base.transcribe(path, language=language, beam_size=5).text
        assert text == decode(openai_base, mel, options).text
        assert path not in hard or text != base.transcribe(path, language=language).text


@pytest.mark.usefixtures("greedy")
def test_tokens_are_those_of_openais_decoder(base: Transcriber, openai_base: Whisper, frontend: Frontend) -> None:
    """One clip a language, timestamps included, from the same features."""
    clips = sorted(MULTILINGUAL.glob("*/pangram*.wav"))
    assert len(clips) >= 8
    for path in clips:
        mel = features(frontend, audio.load(path, 16_000).samples)[0]
        expected = decode(openai_base, mel, DecodingOptions(fp16=False))
        transcript = base.transcribe(path, times=["segment"])
        assert transcript.language == expected.language
        assert [token for segment in transcript.segments for token in segment.tokens] == expected.tokens
