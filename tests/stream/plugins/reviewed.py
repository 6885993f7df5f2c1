"""The scripted model with a review, which reads its verdict off the tokens; every second of sound is a clip."""

from typing import Any

import asr_scripted as scripted
from asr_scripted import (
    capabilities,
    decode_tokens,
    encode_batch,
    extract_features,
    load_weights,
    native_limit,
    prepare_clip,
    prepare_frontend,
    streaming_policy,
)

from asr_core import ModelCard, hookimpl
from asr_core.types import (
    Accept,
    Checkpoint,
    Clip,
    ClipContext,
    ClipOutput,
    NoSpeech,
    Retry,
    TranscriptionRequest,
    Verdict,
)

__all__ = [
    "capabilities",
    "decode_tokens",
    "encode_batch",
    "extract_features",
    "load_weights",
    "native_limit",
    "prepare_clip",
    "prepare_frontend",
    "streaming_policy",
]

NAMES = ("reviewed-token", "reviewed-segment", "reviewed-clip")


@hookimpl
def register_models(register: Any) -> None:
    for name in NAMES:
        register(ModelCard(name))


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    return Checkpoint(ref, ref, path=None) if ref in NAMES else None


@hookimpl
def review_output(output: ClipOutput, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> Verdict:
    attempt = int(context.reason or 0)
    if scripted.RETRY in output.tokens and attempt + 1 < len(scripted.attempts(clip, request)):
        return Retry(str(attempt + 1))
    if scripted.NOBODY in output.tokens:
        return NoSpeech()
    if scripted.RESUME in output.tokens:
        return Accept(scripted.RATE)
    ended = output.finish is not None
    return Accept(scripted.RATE if ended and len(clip.samples) > scripted.RATE else None)
