"""Three limits, three owners: each acts in its own name, and none follows from another."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from attrs import evolve

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.errors import AudioTooLongError, AudioTooShortError, PolicyError
from asr_core.loading import ServedModel
from asr_core.pipeline import transcribe
from asr_core.plan import Planner
from asr_core.testing import tones
from asr_core.types import ChunkPolicy, Transcript, TranscriptionRequest, UploadLimits, Waveform

WORDS = ["some", "words", "between", "which", "it", "is", "quiet", "long", "enough", "to", "cut", "there"]
SOUND = np.concatenate([part for word in WORDS for part in (tones.speak(word), np.zeros(4800, np.float32))])
"""7.96 s: after each word 0.33 s of silence."""

NUMBERS = {
    "native_limit": {"native_limit": {"seconds": 3.5}},
    "chunk_policy": {"chunk_policy": {"target_s": 3.0}},
    "upload_limits": {"limits": {"max_seconds": 5.0}},
}
"""A change of one number, by the layer it is in."""


def changed(served: ServedModel, layer: str) -> tuple[ServedModel, UploadLimits]:
    """The model and the endpoint with one number changed."""
    ((owner, fields),) = NUMBERS[layer].items()
    if owner == "limits":
        return served, UploadLimits(**fields)
    return evolve(served, **{owner: evolve(getattr(served, owner), **fields)}), UploadLimits()


def numbers(served: ServedModel, limits: UploadLimits) -> dict[tuple[str, str], object]:
    """Every number that is explained but for those that follow from others."""
    planner = Planner.of(served.hooks, served.model, served.splitting, limits)
    told = {(number.layer, number.name): number.value for number in planner.numbers}
    return {(layer, name): value for (layer, name), value in told.items() if not name.startswith("clip_")}


def hear(served: ServedModel, limits: UploadLimits) -> Transcript:
    async def read(rate: int) -> Waveform:
        return audio.from_array(SOUND, tones.RATE, rate, limits)

    return asyncio.run(transcribe(served, read, TranscriptionRequest()))


def longest(transcript: Transcript) -> float:
    return max(stretch.end_sample - stretch.start_sample for stretch in transcript.coverage) / tones.RATE


@pytest.mark.parametrize("layer", NUMBERS)
def test_what_is_explained_changes_in_one_layer_alone(fake: Transcriber, layer: str) -> None:
    before, after = numbers(fake.served, UploadLimits()), numbers(*changed(fake.served, layer))
    assert before.keys() == after.keys()
    ((_, fields),) = NUMBERS[layer].items()
    assert {key for key in after if after[key] != before[key]} == {(layer, name) for name in fields}


def test_the_endpoints_limit_refuses_in_its_own_name(fake: Transcriber) -> None:
    with pytest.raises(AudioTooLongError) as raised:
        hear(*changed(fake.served, "upload_limits"))
    assert raised.value.layer == "upload_limits"
    with pytest.raises(AudioTooShortError) as raised:
        hear(fake.served, UploadLimits(min_seconds=50.0))
    assert raised.value.layer == "upload_limits"


@pytest.mark.parametrize(("layer", "most"), [("native_limit", 3.5), ("chunk_policy", 3.0)])
def test_what_is_heard_at_once_refuses_nobody(fake: Transcriber, layer: str, most: float) -> None:
    whole, cut = hear(fake.served, UploadLimits()), hear(*changed(fake.served, layer))
    assert whole.text == "".join(WORDS)
    assert cut.text.replace(" ", "") == whole.text
    assert longest(whole) == 7.96
    assert most / 2 < longest(cut) <= most


def test_the_endpoint_takes_what_is_far_beyond_the_model(fake: Transcriber) -> None:
    served, _ = changed(fake.served, "native_limit")
    assert hear(served, UploadLimits(max_seconds=8.0)).duration > 2 * 3.5


def test_silence_is_what_the_policy_says(fake: Transcriber) -> None:
    silent = evolve(fake.served, chunk_policy=ChunkPolicy(silence_floor=0.9))
    assert hear(silent, UploadLimits()).text == ""


def test_an_operator_decides_below_the_models_limit_and_not_above(fake_model: object) -> None:
    with load("fake", chunk={"target_s": 3}, vad="energy") as transcriber:
        assert longest(transcriber.transcribe(SOUND)) <= 3.0
        assert transcriber.served.native_limit.seconds == 60.0
    with pytest.raises(PolicyError, match=r"target_s is 60\.5 s, above the native limit of 60 s") as caught:
        load("fake", chunk={"target_s": 60.5})
    assert (caught.value.param, caught.value.layer) == ("target_s", "chunk_policy")
