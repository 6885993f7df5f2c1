"""Facts and choices that need no weights: what a checkpoint can do, takes, and is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asr_core.types import Capabilities, ChunkPolicy, EncoderPolicy, NativeLimit, StreamingPolicy
from asr_qwen3.languages import ALIASES, CODES
from asr_qwen3.windows import rows_of_chunk

SAMPLE_RATE = 16_000
HOP = 160
"""Samples per mel frame of all published checkpoints; features are computed with what the extractor says."""

NATIVE_SECONDS = 1200.0
"""What the model card promises at once; the extractor's ``chunk_length`` is a padding length and no limit."""

CONTEXT = 65_536
"""Positions of the language model in transformers' default configuration, which is the published one."""

TEXT_CONTEXT = 32_768
"""Positions of a Qwen3 language model whose configuration names other things, but not these."""

AUDIO_TOKEN = 151_676
"""Default of ``audio_token_id``: the placeholder of an encoder row."""

HALF_CHUNK = 50
"""Default of ``n_window``: half the mel frames of what the encoder's convolutions see at once."""

WINDOW = 800
"""Default of ``n_window_infer``: mel frames that the encoder's attention sees at once, 8 s."""

TARGET_SECONDS = 30.0
"""Longer clips are cut to this by common servers: even batches, and a loop costs no more than one clip."""

MIN_TAIL_SECONDS = 0.5
"""As in other servers of this model; what is shorter the extractor pads to it, which invites words."""

BATCH_WINDOWS = 8
"""Full windows in one batch of the encoder; 64 s of sound fill any device."""

QUEUED_WINDOWS = 512
"""Windows that may wait: three of the longest clips, 200 MB of features."""

CACHE_ENTRIES, CACHE_BYTES = 4096, 512 << 20
"""Over two hours of windows of the 1.7B in bfloat16 (104 rows of 2048): live clips are sent again and again."""

REVIEW_TOKENS = 32
"""Tokens per commit: 2 to 3 s of speech, in which a loop can be told from speech before it is sent."""


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of config.json; a configuration without one means the published 1.7B."""
    return config.get("text_config") or {"max_position_embeddings": CONTEXT}


def context_tokens(config: Mapping[str, Any]) -> int:
    """Positions of the language model."""
    return int(text_config(config).get("max_position_embeddings", TEXT_CONTEXT))


def audio_token(config: Mapping[str, Any]) -> int:
    """The placeholder of an encoder row."""
    return int(config.get("audio_token_id", AUDIO_TOKEN))


def chunk_frames(config: Mapping[str, Any]) -> int:
    """Mel frames the encoder's convolutions see at once."""
    return 2 * int(_audio_config(config).get("n_window", HALF_CHUNK))


def window_frames(config: Mapping[str, Any]) -> int:
    """Mel frames the encoder's attention sees at once."""
    return int(_audio_config(config).get("n_window_infer", WINDOW))


def capabilities() -> Capabilities:
    """All checkpoints can do the same: transcribe 30 languages, detected if none is given, with words to expect."""
    return Capabilities(
        languages=CODES,
        language_aliases=ALIASES,
        detects_language=True,
        prompt="vocabulary",
        temperature=True,
        int8="on_request",
        requires={"transcribe": frozenset({"embeddings"})},
    )


def native_limit(config: Mapping[str, Any]) -> NativeLimit:
    """The model card's seconds, the checkpoint's context."""
    chunk = chunk_frames(config)
    return NativeLimit(
        sample_rate=SAMPLE_RATE,
        seconds=NATIVE_SECONDS,
        context_tokens=context_tokens(config),
        audio_tokens_per_second=rows_of_chunk(chunk) * SAMPLE_RATE / (chunk * HOP),
        sources={
            "sample_rate": "the feature extractor all checkpoints were trained with",
            "seconds": "the model card",
            "context_tokens": "text_config.max_position_embeddings",
            "audio_tokens_per_second": f"{rows_of_chunk(chunk)} rows per {chunk} frames (audio_config.n_window)",
        },
    )


def chunk_policy() -> ChunkPolicy:
    """Far below the native limit, and independent of it."""
    return ChunkPolicy(target_s=TARGET_SECONDS, min_tail_s=MIN_TAIL_SECONDS)


def encoder_policy(config: Mapping[str, Any]) -> EncoderPolicy:
    """Windows share a batch up to a summed number of frames; their rows are kept for clips that go on."""
    return EncoderPolicy(
        max_items=4 * BATCH_WINDOWS,
        max_cost=float(BATCH_WINDOWS * window_frames(config)),
        queue_bound=QUEUED_WINDOWS,
        cache_entries=CACHE_ENTRIES,
        cache_bytes=CACHE_BYTES,
    )


def streaming_policy() -> StreamingPolicy:
    """Text streams in runs of tokens, each looked at for loops first."""
    return StreamingPolicy(commit="token", review_tokens=REVIEW_TOKENS)


def _audio_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("audio_config") or {}
