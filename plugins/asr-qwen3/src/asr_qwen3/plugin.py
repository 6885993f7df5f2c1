"""The hooks; each imports what it needs when it is called, so that registering stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from asr_core import AlignerCard, ModelCard, hookimpl

if TYPE_CHECKING:
    import torch

    from asr_core.types import (
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
    )
    from asr_qwen3.aligner import ForcedAligner
    from asr_qwen3.decoding import TextState
    from asr_qwen3.frontend import Frontend


@hookimpl
def register_models(register: Callable[[ModelCard], None]) -> None:
    from asr_qwen3.cards import CARDS

    for card in CARDS:
        register(card)


@hookimpl
def register_services(register: Callable[[AlignerCard], None]) -> None:
    register(AlignerCard("qwen3-forced-aligner", "0.6B parameters, 11 languages, any model's text", _open_aligner))


def _open_aligner(device: str, dtype: str) -> ForcedAligner:
    from asr_qwen3 import aligner

    return aligner.open_aligner(device, dtype)


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    from asr_qwen3 import cards

    return cards.resolve_checkpoint(ref)


@hookimpl
def capabilities() -> Capabilities:
    from asr_qwen3 import policy

    return policy.capabilities()


@hookimpl
def native_limit(model: CheckpointModel) -> NativeLimit:
    from asr_qwen3 import policy

    return policy.native_limit(model.checkpoint.config.config)


@hookimpl
def chunk_policy() -> ChunkPolicy:
    from asr_qwen3 import policy

    return policy.chunk_policy()


@hookimpl
def encoder_policy(model: CheckpointModel) -> EncoderPolicy:
    from asr_qwen3 import policy

    return policy.encoder_policy(model.checkpoint.config.config)


@hookimpl
def streaming_policy() -> StreamingPolicy:
    from asr_qwen3 import policy

    return policy.streaming_policy()


@hookimpl
def prepare_frontend(model: CheckpointModel) -> Frontend:
    from asr_qwen3 import frontend

    return frontend.prepare_frontend(model.checkpoint)


@hookimpl
def prepare_clip(model: FrontendModel, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    from asr_qwen3 import frontend

    return frontend.prepare_clip(model.frontend, clip, request, context)


@hookimpl
def extract_features(model: FrontendModel, clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    from asr_qwen3 import frontend

    return frontend.extract_features(model.frontend, clip, spans)


@hookimpl
def decode_tokens(
    model: FrontendModel, tokens: Tokens, state: TextState | None, final: bool
) -> tuple[Piece, TextState]:
    from asr_qwen3 import decoding

    return decoding.decode_tokens(model.frontend, tokens, state, final)


@hookimpl
def review_output(
    model: FrontendModel,
    output: ClipOutput,
    prepared: PreparedClip,
    request: TranscriptionRequest,
    context: ClipContext,
) -> Verdict:
    from asr_qwen3 import review

    return review.review_output(model.frontend, output, prepared, request, context)


@hookimpl
def load_weights(model: FrontendModel, parts: frozenset[str], device: str, dtype: str) -> Weights:
    from asr_qwen3 import model as qwen3

    return qwen3.load_weights(model.checkpoint, parts, device, dtype)


@hookimpl
def encode_batch(model: LoadedModel, features: Sequence[Feature]) -> Sequence[torch.Tensor]:
    from asr_qwen3 import model as qwen3

    return qwen3.encode_batch(model.weights.encoder, model.frontend.windows, features)
