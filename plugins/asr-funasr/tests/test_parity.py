"""Prompts, features, counts, rows and tokens are those of transformers' processor and model."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import FunAsrNanoFeatureExtractor, FunAsrNanoProcessor

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.types import AudioSlice, Clip, ClipContext, PreparedClip, Samples, TranscriptionRequest
from asr_funasr.frames import Frames
from asr_funasr.frontend import Frontend, extract_features, prepare_clip, prepare_frontend
from asr_funasr.model import encode_batch
from asr_funasr.template import LANGUAGES

from .conftest import WITH_ITN, Reference, Variant, pretrained, tokens, unhurried

PROMPTS = (None, "a talk about foxes", "天气 Straße ナノ\nsecond line")
KEYWORDS = ((), ("fox",), ("语音", "lazy dog", "héllo"))


def clip(samples: Samples) -> Clip:
    return audio.from_array(samples, 16_000, 16_000).clip()


def prepare(frontend: Frontend, samples: Samples, **request: Any) -> PreparedClip:
    return prepare_clip(frontend, clip(samples), TranscriptionRequest(**request), ClipContext())


def placed(prepared: PreparedClip, placeholder: int) -> list[int]:
    """The prompt as token ids, a placeholder for every row."""
    ids: list[int] = []
    for part in prepared.prompt:
        ids += [placeholder] * part.count if isinstance(part, AudioSlice) else part
    return ids


@pytest.mark.parametrize(
    ("language", "prompt", "keywords"), list(itertools.product((None, *LANGUAGES), PROMPTS, KEYWORDS))
)
def test_prompts_are_the_processors(
    frontend: Frontend,
    reference: Reference,
    reading: Samples,
    language: str | None,
    prompt: str | None,
    keywords: tuple[str, ...],
) -> None:
    samples = reading[:20_000]
    prepared = prepare(frontend, samples, language=language, prompt=prompt, keywords=keywords)
    inputs = reference.inputs(samples, language=language, prompt=prompt, keywords=list(keywords) or None)
    assert placed(prepared, frontend.audio_token_id) == inputs["input_ids"][0].tolist()
    assert prepared.language == language


@pytest.mark.parametrize("itn", [True, False, None])
def test_itn_is_passed_to_a_template_that_knows_it(
    variant: Variant, reference: Reference, reading: Samples, itn: bool | None
) -> None:
    directory = variant(chat_template_jinja=WITH_ITN)
    frontend = prepare_frontend(pretrained(directory))
    options = {} if itn is None else {"itn": itn}
    (text,) = FunAsrNanoProcessor.from_pretrained(directory).apply_transcription_request(
        "clip", tokenize=False, **options
    )
    assert ("不进行文本规整" in text) == (itn is False)
    prepared = prepare(frontend, reading[:400], options=options)
    assert placed(prepared, frontend.audio_token_id) == reference.processor.tokenizer(text)["input_ids"]


@pytest.mark.parametrize("samples", [400, 401, 1360, 16_000, 113_600, 394_000])
def test_features_are_the_extractors(frontend: Frontend, reference: Reference, reading: Samples, samples: int) -> None:
    part = reading[:samples]
    prepared = prepare(frontend, part)
    (feature,) = extract_features(frontend, clip(part), prepared.spans)
    inputs = reference.inputs(part)
    np.testing.assert_array_equal(feature.data, inputs["input_features"][0].numpy())
    assert feature.length == prepared.spans[0].tokens == inputs["input_features_mask"].sum()


@unhurried
@given(samples=st.integers(400, 40_000))
def test_rows_are_counted_without_features(samples: int) -> None:
    extractor = FunAsrNanoFeatureExtractor()
    mask = extractor(np.zeros(samples, np.float32), sampling_rate=16_000).input_features_mask
    assert Frames.of(extractor.to_dict()).rows(samples) == mask.sum()


@unhurried
@given(
    samples=st.integers(200, 30_000),
    settings=st.fixed_dictionaries(
        {
            "sampling_rate": st.sampled_from([8_000, 16_000, 22_050]),
            "frame_length": st.integers(20, 35),
            "frame_shift": st.integers(5, 15),
            "num_frames_lfr": st.integers(1, 9),
            "stride_lfr": st.integers(1, 8),
        }
    ),
)
def test_rows_are_counted_as_the_extractor_is_set(samples: int, settings: dict[str, int]) -> None:
    extractor = FunAsrNanoFeatureExtractor(feature_size=23, **settings)
    frames = Frames.of(extractor.to_dict())
    if samples < frames.window:
        assert frames.rows(samples) == 0
        return
    mask = extractor(np.zeros(samples, np.float32), sampling_rate=settings["sampling_rate"]).input_features_mask
    assert frames.rows(samples) == mask.sum()


@pytest.mark.parametrize("seconds", [0.1, 1, 7.5, 30])
def test_rows_of_the_encoder_are_the_models(
    transcriber: Transcriber, frontend: Frontend, reference: Reference, reading: Samples, seconds: float
) -> None:
    samples = np.resize(reading, round(16_000 * seconds))
    features = extract_features(frontend, clip(samples), prepare(frontend, samples).spans)
    with torch.no_grad():
        rows = encode_batch(transcriber.served.model.weights.encoder, features)[0]
        inputs = reference.inputs(samples)
        inputs.pop("input_ids"), inputs.pop("attention_mask")
        expected = reference.model.get_audio_features(**inputs).pooler_output
    # The same products, summed in another order, through weights ten times as large as those of a trained model.
    torch.testing.assert_close(rows, expected, atol=5e-4, rtol=1e-4)


@unhurried
@given(cuts=st.lists(st.integers(400, 60_000), min_size=2, max_size=8))
def test_company_changes_no_row(
    transcriber: Transcriber, frontend: Frontend, reading: Samples, cuts: list[int]
) -> None:
    encoder = transcriber.served.model.weights.encoder
    features = [
        extract_features(frontend, clip(reading[:cut]), prepare(frontend, reading[:cut]).spans)[0] for cut in cuts
    ]
    with torch.no_grad():
        together = encode_batch(encoder, features)
        for rows, feature in zip(together, features, strict=True):
            torch.testing.assert_close(rows, encode_batch(encoder, [feature])[0], atol=1e-3, rtol=0)


def requests(reading: Samples) -> list[tuple[Samples, dict[str, Any]]]:
    """Unlike in length, language, prompt and keywords."""
    lengths = [16_000, 113_600, 52_000, 6_000, 80_000, 31_000, 200_000, 24_000]
    asked: list[dict[str, Any]] = [
        {},
        {"language": "en"},
        {"language": "zh", "keywords": ["fox", "语音"]},
        {"prompt": "a talk about foxes"},
        {"language": "ja", "prompt": "天气"},
        {"keywords": ["lazy dog"]},
        {},
        {"language": "en", "prompt": "nobody heard", "keywords": ["she"]},
    ]
    starts = [0, 100_000, 30_000, 200_000, 250_000, 300_000, 150_000, 10_000]
    return [
        (reading[start : start + length], request)
        for start, length, request in zip(starts, lengths, asked, strict=True)
    ]


@pytest.fixture(scope="session")
def expected(frontend: Frontend, reference: Reference, reading: Samples) -> list[list[int]]:
    """What generate makes of each request by itself, without the stop token."""
    outputs = []
    for samples, request in requests(reading):
        budget = max(16, -(-200 * len(samples) // 480_000))
        output = reference.tokens(samples, budget, **request)
        outputs.append([token for token in output if token not in frontend.stop])
    assert len({tuple(output) for output in outputs}) == len(outputs)
    assert sum(len(set(output)) > 5 for output in outputs) > len(outputs) / 2
    return outputs


@pytest.mark.parametrize("company", range(1, 9))
def test_tokens_are_those_of_generate(
    transcriber: Transcriber, reading: Samples, expected: list[list[int]], company: int
) -> None:
    def ask(number: int) -> list[int]:
        samples, request = requests(reading)[number]
        return list(tokens(transcriber, samples, **request))

    with ThreadPoolExecutor(company) as pool:
        assert list(pool.map(ask, range(len(expected)))) == expected


def test_the_output_ends_where_generate_ends(variant: Variant, reading: Samples, expected: list[list[int]]) -> None:
    output = max(expected, key=lambda tokens: len(set(tokens)))
    samples, request = requests(reading)[expected.index(output)]
    stop = next(token for token in output if token != output[0])
    directory = variant(generation_config_json=json.dumps({"eos_token_id": [stop]}))
    with load(str(directory), device="cpu", dtype="float32") as other:
        transcript = other.transcribe(samples, **request)
    spoken = output[: output.index(stop)]
    assert [token for one in transcript.segments for token in one.tokens] == spoken
    assert transcript.usage.output_tokens == len(spoken) + 1
    assert transcript.guards == ()
