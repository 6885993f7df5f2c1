"""The hooks; each imports what it needs when it is called, so that registering stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from asr_core import ModelCard, hookimpl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from asr_core.types import (
        Alignment,
        AudioSpan,
        Capabilities,
        Checkpoint,
        CheckpointModel,
        ChunkPolicy,
        Clip,
        ClipContext,
        ClipOutput,
        EncoderPolicy,
        Feature,
        FrontendModel,
        LoadedModel,
        NativeLimit,
        Piece,
        PreparedClip,
        StreamingPolicy,
        Tokens,
        TranscriptionRequest,
        Verdict,
        Weights,
        Word,
    )
    from asr_whisper.decoding import TextState
    from asr_whisper.frontend import Frontend


@hookimpl
def register_models(register: Callable[[ModelCard], None]) -> None:
    from asr_whisper.names import CARDS

    for card in CARDS:
        register(card)


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    from asr_whisper.checkpoints import resolve

    return resolve(ref)


@hookimpl
def capabilities(model: CheckpointModel) -> Capabilities:
    from asr_whisper import policy

    return policy.capabilities(model.checkpoint.config)


@hookimpl
def native_limit(model: CheckpointModel) -> NativeLimit:
    from asr_whisper import policy

    return policy.native_limit(model.checkpoint.config)


@hookimpl
def chunk_policy(model: CheckpointModel) -> ChunkPolicy:
    from asr_whisper import policy

    return policy.chunk_policy(model.checkpoint.config)


@hookimpl
def encoder_policy() -> EncoderPolicy:
    from asr_whisper import policy

    return policy.encoder_policy()


@hookimpl
def streaming_policy() -> StreamingPolicy:
    from asr_whisper import policy

    return policy.streaming_policy()


@hookimpl
def prepare_frontend(model: CheckpointModel) -> Frontend:
    from asr_whisper import frontend

    return frontend.prepare_frontend(model.checkpoint)


@hookimpl
def check_request(model: FrontendModel, request: TranscriptionRequest) -> None:
    from asr_whisper import frontend

    frontend.previous_text(model.frontend, request)
    frontend.beam_size(request)


@hookimpl
def prepare_clip(model: FrontendModel, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    from asr_whisper import frontend

    return frontend.prepare_clip(model.frontend, clip, request, context)


@hookimpl
def extract_features(model: FrontendModel, clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    from asr_whisper import frontend

    return frontend.extract_features(model.frontend, clip, spans)


@hookimpl
def decode_tokens(model: FrontendModel, tokens: Tokens, state: TextState | None) -> tuple[Piece, TextState]:
    from asr_whisper import decoding

    return decoding.decode_tokens(model.frontend, tokens, state)


@hookimpl
def review_output(
    model: FrontendModel,
    output: ClipOutput,
    prepared: PreparedClip,
    request: TranscriptionRequest,
    context: ClipContext,
) -> Verdict:
    from asr_whisper import review

    return review.review_output(model.frontend, output, prepared, request, context)


@hookimpl
def prepare_alignment(model: FrontendModel, output: ClipOutput, prepared: PreparedClip) -> Alignment | None:
    from asr_whisper import alignment

    return alignment.prepare_alignment(model.frontend, output, prepared)


@hookimpl
def align_words(
    model: FrontendModel,
    output: ClipOutput,
    clip: Clip,
    prepared: PreparedClip,
    attention: npt.NDArray[np.float32] | None,
) -> Sequence[Word]:
    from asr_whisper import words

    return words.align_words(model.frontend, output, clip, prepared, attention)


@hookimpl
def load_weights(model: FrontendModel, parts: frozenset[str], device: str, dtype: str) -> Weights:
    from asr_whisper import model as whisper

    return whisper.load_weights(model.checkpoint, parts, device, dtype)


@hookimpl
def encode_batch(model: LoadedModel, features: Sequence[Feature]) -> Generator[None, None, Sequence[torch.Tensor]]:
    from asr_whisper import model as whisper

    return whisper.encode_batch(model.weights.encoder, features)
