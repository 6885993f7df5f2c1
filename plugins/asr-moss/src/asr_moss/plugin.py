"""The hooks; each imports what it needs when it is called, so that registering stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from asr_core import ModelCard, hookimpl

if TYPE_CHECKING:
    import torch

    from asr_core.types import (
        AudioSpan,
        Capabilities,
        Checkpoint,
        CheckpointModel,
        ChunkPolicy,
        Clip,
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
        Weights,
    )
    from asr_moss.frontend import Frontend
    from asr_moss.grammar import Output


@hookimpl
def register_models(register: Callable[[ModelCard], None]) -> None:
    from asr_moss.names import CARD

    register(CARD)


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    from asr_moss.names import find

    return find(ref)


@hookimpl
def capabilities(model: CheckpointModel) -> Capabilities:
    from asr_moss import policy

    return policy.capabilities(model.checkpoint.config)


@hookimpl
def native_limit(model: CheckpointModel) -> NativeLimit:
    from asr_moss import policy

    return policy.native_limit(model.checkpoint.config)


@hookimpl
def chunk_policy() -> ChunkPolicy:
    from asr_moss import policy

    return policy.chunk_policy()


@hookimpl
def encoder_policy() -> EncoderPolicy:
    from asr_moss import policy

    return policy.encoder_policy()


@hookimpl
def streaming_policy() -> StreamingPolicy:
    from asr_moss import policy

    return policy.streaming_policy()


@hookimpl
def prepare_frontend(model: CheckpointModel) -> Frontend:
    from asr_moss import frontend

    return frontend.prepare_frontend(model.checkpoint.config)


@hookimpl
def prepare_clip(model: FrontendModel, clip: Clip, request: TranscriptionRequest) -> PreparedClip:
    from asr_moss import frontend

    return frontend.prepare_clip(model.frontend, clip, request)


@hookimpl
def extract_features(model: FrontendModel, clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    from asr_moss import frontend

    return frontend.extract_features(model.frontend, clip, spans)


@hookimpl
def decode_tokens(model: FrontendModel, tokens: Tokens, state: Output | None, final: bool) -> tuple[Piece, Output]:
    from asr_moss import decoding

    return decoding.decode_tokens(model.frontend, tokens, state, final)


@hookimpl
def load_weights(model: FrontendModel, parts: frozenset[str], device: str, dtype: str) -> Weights:
    from asr_moss import model as moss

    return moss.load_weights(model.checkpoint.config, parts, device, dtype)


@hookimpl
def encode_batch(model: LoadedModel, features: Sequence[Feature]) -> list[torch.Tensor]:
    from asr_moss import model as moss

    return moss.encode_batch(model.weights.encoder, model.frontend.config, features)
