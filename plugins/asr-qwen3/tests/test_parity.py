"""The same ids, features and tokens as transformers' processor and generate, alone and in any company."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import frozen
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import Qwen3ASRForConditionalGeneration, Qwen3ASRProcessor

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.testing.guards import without_guards
from asr_core.types import AudioSlice, ClipContext, PreparedClip, Samples, TranscriptionRequest
from asr_qwen3.frontend import Frontend, extract_features, prepare_clip
from asr_qwen3.languages import CODES

from . import tiny

PROMPTS = (None, "", "Dashwood, Norland", " die schnellen Füchse\n\n语音转写 ", "user\nlanguage English")


@pytest.fixture(autouse=True)
def _unguarded() -> Iterator[None]:
    """All that the model says is compared, also where the core would keep one round of a loop."""
    with without_guards():
        yield


def prepare(frontend: Frontend, samples: Samples, **request: Any) -> PreparedClip:
    clip = audio.from_array(samples, 16_000, 16_000).clip()
    return prepare_clip(frontend, clip, TranscriptionRequest(**request), ClipContext())


def ids(frontend: Frontend, prepared: PreparedClip) -> list[int]:
    """Prompt and given tokens with placeholders where rows go."""
    prompt: list[int] = []
    for part in prepared.prompt:
        prompt += [frontend.audio_token] * part.count if isinstance(part, AudioSlice) else part
    return [*prompt, *prepared.given]


def reference(processor: Qwen3ASRProcessor, samples: Samples, **request: Any) -> Any:
    return processor.apply_transcription_request(samples, processor_kwargs={"sampling_rate": 16_000}, **request)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompts_are_the_processors(
    frontend: Frontend, processor: Qwen3ASRProcessor, speech: Samples, prompt: str | None
) -> None:
    for language in (None, *CODES):
        expected = reference(processor, speech, language=language, prompt=prompt).input_ids[0].tolist()
        assert ids(frontend, prepare(frontend, speech, language=language, prompt=prompt)) == expected


def test_a_forced_language_is_output_already_given(frontend: Frontend, speech: Samples) -> None:
    given = prepare(frontend, speech, language="de").given
    assert frontend.tokenizer.decode(given, skip_special_tokens=False) == "language German<asr_text>"
    assert prepare(frontend, speech).given == ()


@settings(max_examples=60, deadline=None)
@example(samples=1)
@example(samples=8_000)
@example(samples=31_999)
@example(samples=32_000)
@example(samples=32_159)
@example(samples=32_160)
@example(samples=64_000)
@given(samples=st.integers(1, 7 * 16_000))
def test_as_many_rows_as_the_processor_counts(frontend: Frontend, processor: Qwen3ASRProcessor, samples: int) -> None:
    sound = np.sin(np.arange(samples, dtype=np.float32))
    prepared = prepare(frontend, sound)
    expected = reference(processor, sound)
    assert ids(frontend, prepared) == expected.input_ids[0].tolist()
    spans = prepared.spans
    assert [span.start_sample for span in spans[1:]] == [span.end_sample for span in spans[:-1]]
    assert (spans[0].start_sample, spans[-1].end_sample) == (0, samples)
    assert sum(span.cost for span in spans) == expected.input_features_mask.sum()


@pytest.mark.parametrize("samples", [1, 7_999, 8_000, 16_000, 31_999, 32_000, 33_333, 77_777])
def test_features_are_the_processors(
    frontend: Frontend, processor: Qwen3ASRProcessor, reading: Samples, samples: int
) -> None:
    sound = reading[:samples]
    clip = audio.from_array(sound, 16_000, 16_000).clip()
    spans = prepare(frontend, sound).spans
    features = extract_features(frontend, clip, spans)
    expected = reference(processor, sound)
    frames = int(expected.input_features_mask.sum())
    assert [feature.data.shape[1] for feature in features] == [feature.length for feature in features]
    together = np.concatenate([feature.data for feature in features], axis=1)
    np.testing.assert_array_equal(together, expected.input_features[0, :, :frames])
    last = extract_features(frontend, clip, spans[-1:])  # as the cache asks when the others are known
    np.testing.assert_array_equal(last[0].data, features[-1].data)


@frozen
class Case:
    """A stretch of the reading and what is asked about it; the temperature 0 keeps a loop from being tried again."""

    start: int
    end: int
    request: dict[str, Any]

    def transcribe(self, model: Transcriber, reading: Samples) -> list[int]:
        transcript = model.transcribe(reading[self.start : self.end], temperature=0.0, **self.request)
        return [token for segment in transcript.segments for token in segment.tokens]

    def generate(
        self, module: Qwen3ASRForConditionalGeneration, processor: Qwen3ASRProcessor, reading: Samples
    ) -> list[int]:
        """What the reference adds to the prompt, with the forced language and without the stop token."""
        inputs = reference(processor, reading[self.start : self.end], **self.request)
        prompt = reference(processor, reading[self.start : self.end], **{**self.request, "language": None})
        budget = max(128, -(-10 * (self.end - self.start) // 16_000))
        with torch.no_grad():
            output = module.generate(**inputs, do_sample=False, max_new_tokens=budget)
        tokens: list[int] = output[0, prompt.input_ids.shape[1] :].tolist()
        return [token for token in tokens if token not in module.config.eos_token_id]


def cases(number: int, reading: Samples, seed: int) -> list[Case]:
    """Stretches of half a second to ten seconds, with and without a language and a prompt."""
    dice = random.Random(seed)
    found = []
    for _ in range(number):
        start = dice.randrange(len(reading) - 16_000)
        end = min(len(reading), start + dice.randrange(2_000, 160_000))
        language, prompt = dice.choice([None, "en", "yue", "fil"]), dice.choice([None, "Dashwood", "语音 Fuchs"])
        found.append(Case(start, end, {"language": language, "prompt": prompt}))
    return found


@pytest.fixture(scope="module")
def asked(reading: Samples) -> list[Case]:
    return cases(24, reading, seed=7)


@pytest.fixture(scope="module")
def expected(
    asked: Sequence[Case], module: Qwen3ASRForConditionalGeneration, processor: Qwen3ASRProcessor, reading: Samples
) -> list[list[int]]:
    return [case.generate(module, processor, reading) for case in asked]


def test_the_reference_says_many_things(expected: Sequence[list[int]]) -> None:
    """Else equal tokens would prove little."""
    assert len({tuple(tokens) for tokens in expected}) == len(expected)
    assert sum(len(set(tokens)) for tokens in expected) > 20 * len(expected)


@pytest.mark.parametrize("company", [1, 2, 3, 8])
def test_tokens_are_those_of_generate(
    model: Transcriber, asked: Sequence[Case], expected: Sequence[list[int]], reading: Samples, company: int
) -> None:
    with ThreadPoolExecutor(company) as pool:
        assert list(pool.map(lambda case: case.transcribe(model, reading), asked)) == list(expected)


def test_company_that_joins_and_leaves_changes_no_token(
    checkpoint: Path, asked: Sequence[Case], expected: Sequence[list[int]], reading: Samples
) -> None:
    """In a model that has heard nothing yet, so that the windows of all share the encoder's batches."""
    pauses = random.Random(3)

    with load(str(checkpoint), device="cpu", dtype="float32") as model, ThreadPoolExecutor(16) as pool:

        def join(case: Case, pause: float) -> list[int]:
            time.sleep(pause)
            return case.transcribe(model, reading)

        assert list(pool.map(join, asked, [pauses.uniform(0, 1) for _ in asked])) == list(expected)
        assert model.served.engine is not None
        assert model.served.engine.statistics().running == 0


def test_windows_of_eight_seconds_say_what_generate_says(
    processor: Qwen3ASRProcessor, reading: Samples, tmp_path: Path
) -> None:
    """The published window, in 24.7 s of sound."""
    tiny.save(processor, tiny.config(processor, window=800), tmp_path)
    module = Qwen3ASRForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32, local_files_only=True)
    case = Case(0, len(reading), {"language": None, "prompt": "Norland"})
    with load(str(tmp_path), device="cpu", dtype="float32") as model:
        assert case.transcribe(model, reading) == case.generate(module.eval(), processor, reading)
