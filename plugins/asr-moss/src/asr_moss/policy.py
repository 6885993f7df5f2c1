"""Facts and choices that need no weights: what a checkpoint can do, takes, and is sent."""

from __future__ import annotations

import math

from asr_core.checkpoints import Pretrained
from asr_core.errors import CheckpointError
from asr_core.types import Capabilities, ChunkPolicy, EncoderPolicy, NativeLimit, Sampling, StreamingPolicy
from asr_moss.config import SAMPLE_RATE, MossConfig

MAX_SECONDS = 90 * 60.0
"""The longest recording the model card promises to take in one pass."""

OUTPUT_PER_SECOND = 10
"""Tokens for a second of fast speech with its marks: what the model's own server grants."""

MIN_BUDGET = 512
"""Tokens for the shortest clip, from the same server: few seconds may hold many short turns, each with three marks."""

EMPTY_BUDGET = 128
"""Tokens for a clip without a sample, from the same server."""

PROMPT_TOKENS = 1024
"""Room for the instruction, a caller's text and keywords when the native limit is worked out."""

TOP_P, TOP_K = 0.95, 50
"""The model's own settings for sampling; its default is not to sample."""


def capabilities(config: Pretrained) -> Capabilities:
    """Times and speakers are always in the output; keywords are taken if the checkpoint's chat template has a place."""
    return Capabilities(
        segment_times=True,
        speakers=True,
        prompt="instruction",
        keywords=_takes_keywords(config),
        temperature=True,
        int8="on_request",
        requires={"transcribe": frozenset({"embeddings"})},
    )


def native_limit(config: Pretrained) -> NativeLimit:
    """What the model card promises, or less where the context cannot hold so much audio and what is said in it.

    Raises:
        CheckpointError: the context has no room for any audio.
    """
    sizes = MossConfig.of(config.config)
    per_second = sizes.rows_per_second + OUTPUT_PER_SECOND
    room = (sizes.context - PROMPT_TOKENS) / per_second
    if room <= 0:
        raise CheckpointError(f"a context of {sizes.context} tokens has no room for audio")
    context = (
        f"{sizes.context} tokens without {PROMPT_TOKENS} of prompt, at {per_second:g} of audio and text per second"
    )
    return NativeLimit(
        sample_rate=SAMPLE_RATE,
        seconds=min(MAX_SECONDS, room),
        context_tokens=sizes.context,
        audio_tokens_per_second=sizes.rows_per_second,
        sources={
            "sample_rate": "the feature extractor all checkpoints were trained with",
            "seconds": "the model card: 90 minutes" if room >= MAX_SECONDS else context,
            "context_tokens": "max_position_embeddings of the language model",
            "audio_tokens_per_second": f"hop of {sizes.hop} samples, 2 frames per position, {sizes.merge} per token",
        },
    )


def chunk_policy() -> ChunkPolicy:
    """Whole recordings: a speaker has one number from beginning to end only within one pass."""
    return ChunkPolicy()


def encoder_policy() -> EncoderPolicy:
    """Blocks leave at once, two at a time: waiting for company costs more than it saves with windows of 30 s.

    The bounds of the cache and the timeout are those of the model's own server. A recording of 90 minutes is 180 blocks
    that come at once, of about 1 MB each: a few of them may wait.
    """
    return EncoderPolicy(
        max_items=2,
        max_wait_s=0.0,
        queue_bound=1024,
        cache_entries=4096,
        cache_bytes=2 << 30,
        timeout_s=300.0,
        retry_items=True,
    )


def streaming_policy() -> StreamingPolicy:
    """A segment stands once its end is said."""
    return StreamingPolicy(commit="segment")


def budget(seconds: float, room: int) -> int:
    """Tokens that a clip of so many seconds may put out, when the context has ``room`` for more."""
    wanted = max(MIN_BUDGET, math.ceil(OUTPUT_PER_SECOND * seconds)) if seconds else EMPTY_BUDGET
    return min(wanted, room)


def sampling(temperature: float | None) -> Sampling:
    """Greedy unless the caller wants otherwise."""
    return Sampling(temperature, top_p=TOP_P, top_k=TOP_K) if temperature else Sampling()


def _takes_keywords(config: Pretrained) -> bool:
    """As published where no template is at hand: a card's configuration has no files."""
    if config.directory is None and config.repository is None:
        return True
    return "keywords" in (config.read_text("chat_template.jinja") or "")
