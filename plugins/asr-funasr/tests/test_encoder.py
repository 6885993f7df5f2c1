"""Rows in the core's encoder service under this plugin's policy: kept, joined, and never kept when damaged."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.engines.protocol import EncodedRows
from asr_core.errors import EngineError, OverloadedError
from asr_core.loading import ServedModel
from asr_core.types import Clip, ClipContext, Samples, TranscriptionRequest


@pytest.fixture
def fresh(checkpoint: Path) -> Iterator[Transcriber]:
    with load(str(checkpoint), device="cpu", dtype="float32") as transcriber:
        yield transcriber


@pytest.fixture
def served(fresh: Transcriber) -> ServedModel:
    return fresh.served


@pytest.fixture
def positions(served: ServedModel) -> torch.Tensor:
    positions: torch.Tensor = served.model.weights.encoder.audio_tower.position_embeddings.positional_embedding
    return positions


def part(reading: Samples, start: int, end: int) -> Clip:
    return audio.from_array(reading[start:end], 16_000, 16_000).clip()


def encode(served: ServedModel, *clips: Clip) -> list[Any]:
    """Rows or errors, of clips that wait for the encoder together."""

    async def one(clip: Clip) -> EncodedRows:
        prepared = served.hooks.prepare_clip(served.model, clip, TranscriptionRequest(), ClipContext())
        return (await served.encoder.encode(clip, prepared.spans))[0]

    async def together() -> list[Any]:
        return await asyncio.gather(*map(one, clips), return_exceptions=True)

    with ThreadPoolExecutor(1) as pool:
        busy = threading.Event()
        served.compute.submit(busy.wait)
        results = pool.submit(asyncio.run, together())
        deadline = time.monotonic() + 30
        while served.encoder.statistics().queued < len(clips) and not results.done() and time.monotonic() < deadline:
            time.sleep(0.01)
        busy.set()
        return results.result()


def test_equal_sound_is_encoded_once(fresh: Transcriber, served: ServedModel, reading: Samples) -> None:
    with ThreadPoolExecutor(6) as pool:
        texts = {one.text for one in pool.map(fresh.transcribe, [reading[:80_000]] * 6)}
    statistics = served.encoder.statistics()
    assert len(texts) == 1
    assert (statistics.misses, statistics.items, statistics.entries) == (1, 1, 1)
    assert statistics.hits + statistics.merged == 5
    rows, width, float32 = (
        served.hooks.prepare_clip(served.model, part(reading, 0, 80_000), TranscriptionRequest(), ClipContext())
        .spans[0]
        .tokens,
        64,
        4,
    )
    assert statistics.bytes == rows * width * float32


def test_what_waits_together_is_encoded_together(served: ServedModel, reading: Samples) -> None:
    clips = [part(reading, start, start + 16_000 + start // 10) for start in range(0, 80_000, 10_000)]
    rows = encode(served, *clips)
    statistics = served.encoder.statistics()
    assert (statistics.items, statistics.batches) == (8, 1)
    for clip, one in zip(clips, rows, strict=True):
        assert len(one.rows) == math.ceil((1 + (len(clip.samples) - 400) // 160) / 6)


def test_a_batch_is_bounded_in_sound(served: ServedModel, reading: Samples) -> None:
    clips = [part(reading, start, start + 390_000) for start in range(0, 5_000, 1_000)]  # 406 rows each
    assert all(isinstance(one, EncodedRows) for one in encode(served, *clips))
    assert served.encoder.statistics().batches == 2


def test_damaged_rows_fail_alone_and_are_not_kept(
    served: ServedModel, positions: torch.Tensor, reading: Samples
) -> None:
    short, long = part(reading, 0, 32_000), part(reading, 40_000, 120_000)  # 33 and 83 rows
    whole = positions.clone()
    positions[60:] = math.nan
    rows, error = encode(served, short, long)
    assert torch.isfinite(rows.rows).all()
    assert isinstance(error, EngineError)
    assert "not finite" in error.message
    statistics = served.encoder.statistics()
    assert (statistics.failed, statistics.retried, statistics.entries) == (1, 2, 1)
    positions.copy_(whole)
    (mended,) = encode(served, long)
    assert torch.isfinite(mended.rows).all()
    assert served.encoder.statistics().hits == 0


def test_the_caller_is_told_of_damaged_rows(fresh: Transcriber, positions: torch.Tensor, reading: Samples) -> None:
    positions.fill_(math.inf)
    with pytest.raises(EngineError, match="not finite"):
        fresh.transcribe(reading[:32_000])


def test_rows_of_a_closed_model_are_refused(fresh: Transcriber, served: ServedModel, reading: Samples) -> None:
    fresh.transcribe(reading[:32_000])
    served.encoder.close()
    served.encoder.close()
    assert served.encoder.statistics().entries == 0
    with pytest.raises(OverloadedError):
        fresh.transcribe(reading[:32_000])
    assert served.encoder.health() is None
