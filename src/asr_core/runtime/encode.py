"""From spans to what the model makes of them: features off the event loop, batches on the compute thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import uuid4

from asr_core.engines.protocol import EncodedRows
from asr_core.errors import PluginError
from asr_core.loading import ServedModel
from asr_core.types import AudioSpan, Clip, Feature, LoadedModel, Recognized

T = TypeVar("T")


async def encode(served: ServedModel, clip: Clip, spans: Sequence[AudioSpan]) -> list[EncodedRows]:
    """Encoder rows of shape [span.tokens, width] per span.

    Raises:
        PluginError: the encoder returned another number of rows than the span was planned with.
    """
    encoded = await _batches(served, clip, spans, served.hooks.encode_batch)
    for span, rows in zip(spans, encoded, strict=True):
        if len(rows) != span.tokens:
            raise PluginError(
                f"{served.hooks.owner}: encode_batch returned {len(rows)} rows for a span of {span.tokens} tokens"
            )
    return [EncodedRows(rows, uuid4().bytes) for rows in encoded]


async def recognize(served: ServedModel, clip: Clip, spans: Sequence[AudioSpan]) -> list[Recognized]:
    """Tokens per span, from a model that does not generate."""
    return await _batches(served, clip, spans, served.hooks.recognize_batch)


async def _batches(
    served: ServedModel,
    clip: Clip,
    spans: Sequence[AudioSpan],
    run: Callable[[LoadedModel, Sequence[Feature]], Sequence[T]],
) -> list[T]:
    features = await asyncio.to_thread(served.hooks.extract_features, served.model, clip, spans)
    size = served.encoder_policy.max_items
    results: list[T] = []
    for first in range(0, len(features), size):
        results += await served.compute.run(run, served.model, features[first : first + size])
    return results
