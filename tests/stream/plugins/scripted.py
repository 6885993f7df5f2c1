"""A model that says what its option ``script`` writes down: per second of sound the attempts, each a list of tokens.

Tokens are bytes one by one or in pairs, so that characters are split in every way, and the marks below. Its cards
differ in the unit they commit by; ``scripted-flush`` commits by token and gives its text only at the end.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from asr_core import ModelCard, hookimpl
from asr_core.types import (
    AudioSpan,
    Capabilities,
    Checkpoint,
    Clip,
    ClipContext,
    End,
    Feature,
    NativeLimit,
    OptionSpec,
    Piece,
    PreparedClip,
    Start,
    StreamingPolicy,
    Tokens,
    TranscriptionRequest,
    Weights,
)

RATE = 16_000
PAIRS = 256
"""Token of the bytes 0, 0; the other pairs follow."""

RUN = 4
"""Tokens between two reviews of a model that commits by token."""

STOP, RETRY, NOBODY, RESUME, BEGIN = range(PAIRS + 65536, PAIRS + 65541)
START = BEGIN + 1
END = START + 100
"""Marks at 0, 10, 20, ... ms."""

VOCABULARY = END + 100
NAMES = ("scripted-token", "scripted-segment", "scripted-clip", "scripted-flush")


@hookimpl
def register_models(register: Any) -> None:
    for name in NAMES:
        register(ModelCard(name))


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    return Checkpoint(ref, ref, path=None) if ref in NAMES else None


@hookimpl
def capabilities() -> Capabilities:
    return Capabilities(options=(OptionSpec("script", "string", "what to say"),), segment_times=True)


@hookimpl
def native_limit() -> NativeLimit:
    return NativeLimit(RATE, seconds=None)


@hookimpl
def streaming_policy(model: Any) -> StreamingPolicy:
    commit = model.card.name.split("-")[1]
    return StreamingPolicy(commit="token" if commit == "flush" else commit, review_tokens=RUN)


@hookimpl
def prepare_frontend(model: Any) -> str:
    return str(model.card.name)


def attempts(clip: Clip, request: TranscriptionRequest) -> list[list[int]]:
    return json.loads(request.options["script"])[clip.start_sample // RATE]


@hookimpl
def prepare_clip(clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    said = attempts(clip, request)[int(context.reason or 0)]
    script = [*context.hypothesis, *said, STOP]
    span = AudioSpan(0, len(clip.samples), tokens=len(script), key=json.dumps(script))
    return PreparedClip((span,), prompt=((BEGIN,),), cross=0, stop=frozenset({STOP}), budget=len(script))


@hookimpl
def extract_features(clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    return [Feature(np.array(json.loads(span.key)), span.tokens) for span in spans]


@hookimpl
def load_weights() -> Weights:
    return Weights(encoder="none", decoder=Decoder())


@hookimpl
def encode_batch(features: Sequence[Feature]) -> list[torch.Tensor]:
    return [torch.from_numpy(feature.data)[:, None] for feature in features]


class Decoder:
    """Reads the script that the slot listens to; the prompt is one token, so output token n follows position n."""

    def __init__(self) -> None:
        self._scripts: dict[int, list[int]] = {}

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        self._scripts[slot] = encoded[:, 0].tolist()

    def extend(self, rows: Sequence[Any]) -> torch.Tensor:
        tokens = [token for row in rows for token in self._next(row)]
        logits = torch.full((len(tokens), VOCABULARY), -100.0)
        logits[range(len(tokens)), tokens] = 0.0
        return logits

    def _next(self, row: Any) -> list[int]:
        end = row.start + sum(len(part) for part in row.parts)
        return self._scripts[row.slot][end - row.want : end]

    def free(self, slot: int) -> None:
        self._scripts.pop(slot, None)


@hookimpl
def decode_tokens(model: Any, tokens: Tokens, state: Any, final: bool) -> tuple[Piece, Any]:
    if not model.frontend.endswith("flush"):
        return tuple(read(tokens)), state
    kept = (*(state or ()), *tokens)
    return (tuple(read(kept)), None) if final else ((), kept)


def read(tokens: Sequence[int]) -> Iterator[str | Start | End]:
    """Neighbouring bytes are read together."""
    raw = b""
    for token in (*tokens, STOP):
        if token < PAIRS:
            raw += bytes([token])
        elif token < STOP:
            raw += bytes(divmod(token - PAIRS, 256))
        else:
            if raw:
                yield raw.decode(errors="replace")
            raw = b""
            if token >= START:
                yield Start(10 * (token - START)) if token < END else End(10 * (token - END))
