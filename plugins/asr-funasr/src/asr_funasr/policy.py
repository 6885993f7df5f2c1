"""Facts and choices that need no weights: what a checkpoint can do, takes, and is sent."""

from __future__ import annotations

from asr_core.checkpoints import Pretrained
from asr_core.types import Capabilities, ChunkPolicy, EncoderPolicy, NativeLimit, OptionSpec, StreamingPolicy
from asr_funasr.frames import Frames
from asr_funasr.numbers import positive, section
from asr_funasr.template import LANGUAGES, read_fields

SECONDS = 30.0
"""The longest segment that FunASR's own pipeline, which cuts by voice activity, sends to this model."""

CONTEXT_TOKENS = 40_960
"""Positions of the published language model."""

OTHER_CONTEXT_TOKENS = 32_768
"""What transformers takes for a language model that is configured without the number."""

ITN = OptionSpec("itn", "boolean", "write numbers, dates and the like as people write them")


def capabilities(checkpoint: Pretrained) -> Capabilities:
    """What the chat template knows. The model answers in the language it hears and does not name it."""
    fields = read_fields(checkpoint)
    return Capabilities(
        languages=tuple(LANGUAGES) if fields.language else (),
        language_aliases={name: code for code, name in LANGUAGES.items()} if fields.language else {},
        prompt="vocabulary" if fields.prompt else None,
        keywords=fields.keywords,
        temperature=True,
        int8="on_request",
        options=(ITN,) if fields.itn else (),
        requires={"transcribe": frozenset({"embeddings"})},
    )


def native_limit(checkpoint: Pretrained) -> NativeLimit:
    """The length is a number of its own: neither extractor nor context knows what the model was trained on."""
    frames = read_frames(checkpoint)
    return NativeLimit(
        sample_rate=frames.sample_rate,
        seconds=SECONDS,
        context_tokens=context_tokens(checkpoint),
        audio_tokens_per_second=frames.rows_per_second,
        sources={
            "sample_rate": "the checkpoint's feature extractor",
            "seconds": "the longest segment FunASR's own pipeline sends to the model",
            "context_tokens": "max_position_embeddings of the language model",
            "audio_tokens_per_second": f"a frame every {frames.shift} samples, {frames.stride} frames a row",
        },
    )


def chunk_policy() -> ChunkPolicy:
    """As long as the model takes: context within a chunk is what a language model is good at."""
    return ChunkPolicy(target_s=SECONDS)


def encoder_policy() -> EncoderPolicy:
    """A cost is a row.

    FunASR's serving numbers: 8 items, 4 ms, 4096 entries, 2 GiB. A batch that is full of audio, at 2000 rows (four
    clips of 30 s), leaves as it is: the encoder gains nothing from more and generation waits for it.
    """
    return EncoderPolicy(
        max_items=8,
        max_cost=2000.0,
        max_wait_s=0.004,
        cache_entries=4096,
        cache_bytes=2 << 30,
        timeout_s=300.0,
        retry_items=True,
    )


def streaming_policy() -> StreamingPolicy:
    """Plain text that nothing reviews: every token is final."""
    return StreamingPolicy(commit="token")


def read_frames(checkpoint: Pretrained) -> Frames:
    """From the settings of the feature extractor.

    Raises:
        CheckpointError: they are damaged.
    """
    own = section(checkpoint.read_json("processor_config.json"), "feature_extractor")
    return Frames.of(own or checkpoint.read_json("preprocessor_config.json"))


def context_tokens(checkpoint: Pretrained) -> int:
    """Positions of the language model.

    Raises:
        CheckpointError: the number is damaged.
    """
    text = section(checkpoint.config, "text_config")
    return positive(text, "max_position_embeddings", OTHER_CONTEXT_TOKENS if text else CONTEXT_TOKENS)
