"""Facts and choices that need no weights: what a checkpoint can do, takes, and is sent."""

from __future__ import annotations

from asr_core.types import Capabilities, ChunkPolicy, EncoderPolicy, NativeLimit, OptionSpec, StreamingPolicy, Task
from asr_whisper.config import WhisperConfig
from asr_whisper.languages import spoken

SAMPLE_RATE = 16_000
HOP = 160
"""Samples per mel frame."""

FRAMES_PER_POSITION = 2
"""The second convolution of the encoder has stride 2."""

SECONDS_PER_TIMESTAMP = 0.02
"""One encoder position, and so one timestamp token, is 2 frames of 10 ms."""


BEAM_SIZE = OptionSpec("beam_size", "integer", "texts that are followed side by side, the best of which is told")

MAX_BEAM_SIZE = 10
"""Twice what is usual: a long recording takes twice as long as with one."""


def capabilities(config: WhisperConfig) -> Capabilities:
    """Computed from the dimensions: English-only vocabularies and pruned decoders cannot translate.

    Decoders with fewer layers than their encoder (turbo, distilled ones) were trained to transcribe only.
    """
    dims = config.dims
    languages = spoken(config)
    tasks: frozenset[Task] = frozenset({"transcribe"})
    if config.multilingual and dims.text_layers >= dims.audio_layers:
        tasks |= {"translate"}
    generates = frozenset({"cross_attention", "probes", "rules"})
    return Capabilities(
        tasks=tasks,
        languages=languages,
        detects_language=config.multilingual,
        candidates=config.multilingual,
        segment_times=True,
        word_times=True,
        prompt="previous_text",
        temperature=True,
        options=(BEAM_SIZE,),
        int8="automatic",
        requires={
            **dict.fromkeys(tasks, generates),
            "segment_times": frozenset({"custom_rules"}),
            "word_times": frozenset({"attention"}),
            BEAM_SIZE.name: frozenset({"beams"}),
        },
    )


def native_limit(config: WhisperConfig) -> NativeLimit:
    """The window the encoder's position embeddings span: 1500 positions are 30 s."""
    dims = config.dims
    per_second = SAMPLE_RATE / (HOP * FRAMES_PER_POSITION)
    return NativeLimit(
        sample_rate=SAMPLE_RATE,
        seconds=dims.audio_context / per_second,
        context_tokens=dims.text_context,
        audio_tokens_per_second=per_second,
        sources={
            "sample_rate": "the feature extractor all checkpoints were trained with",
            "seconds": f"{dims.audio_context} encoder positions at {per_second:g} per second",
            "context_tokens": "the decoder's position embeddings",
            "audio_tokens_per_second": f"hop of {HOP} samples, {FRAMES_PER_POSITION} frames per position",
        },
    )


OVERLAP_S = 2.0
"""Word errors of the base model in 22 minutes (3710 words) with pauses, without, and in noise, 5 s of search, greedy:

- clips of at most 25 s, no overlap: 2.70, 3.05, 5.58 %
- 30 s, no overlap: 2.94, 2.48, 5.09 %, of which near cuts 4.61, 5.65, 7.72 %

With 7 s of search and a beam of 5, each from several placements of the cuts, which alone change these by 0.3:

- overlap of 1.5 s: 2.24 to 2.32, 2.59 to 2.72, 4.56 %, near cuts 1.50 to 1.86, 3.31 to 4.01, 6.02 %
- 2 s: 2.10 to 2.61, 2.43 to 2.56, 4.53 %, near cuts 2.43 to 2.64, 2.37 to 2.82, 5.99 %
- 3 s: 2.35, 3.02, 4.31 %, and a sixth more clips
"""

SEARCH_S = 7.0
"""Readers pause about every five seconds, and not always for long."""

PARALLEL = 8
"""Clips at once: a step of eight rows takes twice as long as one of one, as it reads the weights once."""


def chunk_policy(config: WhisperConfig) -> ChunkPolicy:
    """Whole windows; no text is carried over, as one clip that goes wrong would take the next along."""
    window_s = config.dims.audio_context * FRAMES_PER_POSITION * HOP / SAMPLE_RATE
    return ChunkPolicy(target_s=window_s, search_s=SEARCH_S, overlap_s=OVERLAP_S, parallel=PARALLEL)


def encoder_policy() -> EncoderPolicy:
    """Windows are large; a few at a time fill any device."""
    return EncoderPolicy(max_items=8)


def streaming_policy() -> StreamingPolicy:
    """The thresholds of the review are the original's, which are made for whole windows."""
    return StreamingPolicy(commit="clip")
