"""Three limits, three owners: each refuses in its own name, and none follows from another."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.errors import AudioTooLongError, AudioTooShortError
from asr_core.pipeline import transcribe
from asr_core.testing import tones
from asr_core.types import ChunkPolicy, TranscriptionRequest, UploadLimits, Waveform

TEXT = "nine seconds of tones " * 5
SOUND = tones.speak(TEXT)


def hear(fake: Transcriber, limits: UploadLimits, **changed: object) -> str:
    """The fake model's answer under these limits, with what its plugin said changed."""
    served = evolve(fake.served, **changed)

    async def read(rate: int) -> Waveform:
        return audio.from_array(SOUND, tones.RATE, rate, limits)

    return asyncio.run(transcribe(served, read, TranscriptionRequest())).text


def test_the_endpoints_limit_refuses_in_its_own_name(fake: Transcriber) -> None:
    with pytest.raises(AudioTooLongError) as raised:
        hear(fake, UploadLimits(max_seconds=5.0))
    assert raised.value.layer == "upload_limits"
    with pytest.raises(AudioTooShortError) as raised:
        hear(fake, UploadLimits(min_seconds=50.0))
    assert raised.value.layer == "upload_limits"
    assert fake.served.native_limit.seconds == 60.0


def test_the_models_limit_refuses_in_its_own_name(fake: Transcriber) -> None:
    native = evolve(fake.served.native_limit, seconds=5.0)
    with pytest.raises(AudioTooLongError, match="takes 5 s at once") as raised:
        hear(fake, UploadLimits(max_seconds=1000.0), native_limit=native)
    assert raised.value.layer == "native_limit"


def test_what_we_want_to_send_at_once_limits_nobody(fake: Transcriber) -> None:
    assert hear(fake, UploadLimits(), chunk_policy=ChunkPolicy(target_s=1.0)) == TEXT.strip()


def test_silence_is_what_the_policy_says(fake: Transcriber) -> None:
    assert hear(fake, UploadLimits(), chunk_policy=ChunkPolicy(silence_floor=0.9)) == ""
