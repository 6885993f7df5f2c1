"""Token for token what ``generate`` says of the same weights, alone and in any company."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.testing.guards import without_guards
from asr_core.types import Samples, Tokens, TranscriptionRequest
from asr_moss.frontend import extract_features, prepare_clip

from .conftest import RATE, encode

CASES: Mapping[str, tuple[float, float, Mapping[str, Any]]] = {
    "short": (0.0, 2.5, {}),
    "a word": (3.2, 3.9, {}),
    "prompt": (5.0, 7.5, {"prompt": "Who speaks, and when?"}),
    "keywords": (8.0, 11.0, {"keywords": ["fox", "狐狸"]}),
    "both": (2.0, 9.0, {"prompt": "说话人", "keywords": ["dog"]}),
    "window": (0.0, 24.7, {}),
    "blocks": (0.0, 38.0, {"keywords": ["lazy"]}),
    "moment": (1.0, 1.12, {}),
}
"""Seconds of the reading said twice, and what is asked."""


@pytest.fixture(scope="module")
def clips(reading: Samples) -> dict[str, Samples]:
    twice = np.concatenate([reading, reading])
    return {name: twice[round(start * RATE) : round(end * RATE)] for name, (start, end, _) in CASES.items()}


@pytest.fixture(scope="module")
def expected(clips: dict[str, Samples], processor: Any, reference: Any) -> dict[str, Tokens]:
    """What generate says within the same number of tokens, without the token that ended it."""
    said = {}
    for name, (_, _, request) in CASES.items():
        inputs = encode(processor, clips[name], **request)
        output = reference.generate(**inputs, max_new_tokens=512, do_sample=False)
        ids = output[0, inputs.input_ids.shape[1] :].tolist()
        said[name] = tuple(ids[:-1] if ids[-1] in reference.generation_config.eos_token_id else ids)
    return said


@pytest.fixture(autouse=True)
def _unguarded() -> Iterator[None]:
    """All that the model says is compared, also where the core would keep one round of a loop."""
    with without_guards():
        yield


@pytest.fixture
def transcribe(tiny: Transcriber, clips: dict[str, Samples]) -> Any:
    def run(name: str, pause: float = 0.0) -> Tokens:
        time.sleep(pause)
        segments = tiny.transcribe(clips[name], **CASES[name][2]).segments
        return tuple(token for segment in segments for token in segment.tokens)

    return run


def test_outputs_are_worth_comparing(expected: dict[str, Tokens]) -> None:
    """They differ, and do not say one token for ever."""
    assert len(set(expected.values())) == len(CASES)
    assert sum(len(set(tokens)) > 4 for tokens in expected.values()) > len(CASES) / 2


@pytest.mark.parametrize("name", CASES)
def test_alone(transcribe: Any, expected: dict[str, Tokens], name: str) -> None:
    assert transcribe(name) == expected[name]


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_together(transcribe: Any, expected: dict[str, Tokens], size: int) -> None:
    names = list(CASES)[-size:]
    with ThreadPoolExecutor(size) as pool:
        assert dict(zip(names, pool.map(transcribe, names), strict=True)) == {name: expected[name] for name in names}


def test_while_others_join_and_leave(tiny: Transcriber, transcribe: Any, expected: dict[str, Tokens]) -> None:
    pauses = random.Random(7)
    names = [*CASES, *CASES]
    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(transcribe, names, [pauses.uniform(0, 1) for _ in names]))
    assert said == [expected[name] for name in names]
    assert tiny.served.engine is not None
    assert tiny.served.engine.statistics().running == 0


# Encoder


def rows(tiny: Transcriber, clips: list[Samples]) -> list[np.ndarray]:
    """Of all blocks of all clips, in one batch."""
    served, features = tiny.served, []
    for samples in clips:
        clip = audio.from_array(samples, RATE, RATE).clip()
        spans = prepare_clip(served.model.frontend, clip, TranscriptionRequest()).spans
        features += extract_features(served.model.frontend, clip, spans)
    return [one.numpy() for one in served.compute.submit(served.hooks.encode_batch, served.model, features).result()]


def test_rows_are_those_of_transformers(
    tiny: Transcriber, clips: dict[str, Samples], processor: Any, reference: Any
) -> None:
    inputs = encode(processor, clips["blocks"])
    names = ("input_features", "input_features_mask", "padding_mask")
    with torch.no_grad():
        theirs = reference.get_audio_features(**{name: inputs[name] for name in names}).pooler_output
    np.testing.assert_allclose(np.concatenate(rows(tiny, [clips["blocks"]])), theirs.numpy(), atol=1e-5)


def test_rows_do_not_depend_on_company(tiny: Transcriber, clips: dict[str, Samples]) -> None:
    samples = [clips[name] for name in ("short", "moment", "window", "a word")]
    for together, alone in zip(rows(tiny, samples), [rows(tiny, [one])[0] for one in samples], strict=True):
        np.testing.assert_allclose(together, alone, atol=1e-5)


def test_silence_at_the_end_is_heard_too(tiny: Transcriber, reading: Samples) -> None:
    """The same spectrogram as the padding of the shorter clip, whose rows the cache holds, and more rows."""
    clip = reading[: 3 * RATE]
    longer = np.concatenate([clip, np.zeros(RATE, np.float32)])
    short, long = (tiny.transcribe(one) for one in (clip, longer))
    assert (short.usage.audio_tokens, long.usage.audio_tokens) == (38, 50)
    assert tiny.transcribe(clip).usage == short.usage
