"""A model with any fault: its option ``script`` says what it puts out for the clip between two seconds.

A key is both, as in ``0-2.5``, or where it starts; with a plus, for a clip with the text of the one before. There are
as many attempts as texts. ``<1.5>`` is a time, of a start where no segment is open; ``{retry}`` and ``{nobody}`` are
read by its review, ``{budget}`` has it end after 100 tokens.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from asr_core import ModelCard, hookimpl
from asr_core.types import (
    Accept,
    AudioSpan,
    Capabilities,
    Checkpoint,
    Clip,
    ClipContext,
    ClipOutput,
    End,
    Feature,
    NativeLimit,
    NoSpeech,
    OptionSpec,
    Piece,
    PreparedClip,
    Retry,
    Start,
    StreamingPolicy,
    Tokens,
    TranscriptionRequest,
    Verdict,
    Weights,
)

STOP, RETRY, NOBODY, TIME = 256, 257, 258, 300
"""Tokens below are bytes, TIME + n is n hundredths of a second."""

NAMES = ("guarded-token", "guarded-segment", "guarded-clip")


@hookimpl
def register_models(register: Any) -> None:
    for name in NAMES:
        register(ModelCard(name))


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    return Checkpoint(ref, ref, path=None) if ref in NAMES else None


@hookimpl
def capabilities() -> Capabilities:
    return Capabilities(options=(OptionSpec("script", "string", "what to say"),), segment_times=True, prompt="previous")


@hookimpl
def native_limit() -> NativeLimit:
    return NativeLimit(16_000, seconds=None)


@hookimpl
def streaming_policy(model: Any) -> StreamingPolicy:
    return StreamingPolicy(commit=model.card.name.split("-")[1], review_tokens=1)


@hookimpl
def prepare_frontend() -> str:
    return "none"


def attempts(clip: Clip, request: TranscriptionRequest, context: ClipContext) -> list[str]:
    script = json.loads(request.options["script"])
    start, end = (f"{round(sample / clip.rate, 1):g}" for sample in (clip.start_sample, clip.end_sample))
    keys = [f"{start}-{end}", *([f"{start}+"] if context.previous_text else []), start]
    said = next(script[key] for key in keys if key in script)
    return [said] if isinstance(said, str) else said


@hookimpl
def prepare_clip(clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    said = attempts(clip, request, context)[context.attempt]
    script = [*context.hypothesis, *written(said), STOP]
    span = AudioSpan(0, len(clip.samples), tokens=len(script), key=json.dumps(script))
    budget = 100 if "{budget}" in said else len(script)
    return PreparedClip((span,), prompt=((STOP,),), cross=0, stop=frozenset({STOP}), budget=budget)


def written(said: str) -> Iterator[int]:
    for time, mark, text in re.findall(r"<(-?[\d.]+)>|{(\w+)}|([^<{]+)", said):
        if time:
            yield TIME + round(100 * float(time))
        elif mark:
            yield from {"retry": [RETRY], "nobody": [NOBODY]}.get(mark, [])
        else:
            yield from text.encode()


@hookimpl
def extract_features(spans: Sequence[AudioSpan]) -> list[Feature]:
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
        logits = torch.full((len(tokens), TIME + 10_000), -100.0)
        logits[range(len(tokens)), tokens] = 0.0
        return logits

    def _next(self, row: Any) -> list[int]:
        end = row.start + sum(len(part) for part in row.parts)
        return self._scripts[row.slot][end - row.want : end]

    def free(self, slot: int) -> None:
        self._scripts.pop(slot, None)


@hookimpl
def decode_tokens(tokens: Tokens, state: Any) -> tuple[Piece, Any]:
    text = bytes(token for token in tokens if token < STOP).decode(errors="replace")
    marks: list[Start | End] = []
    for token in tokens:
        if token >= TIME - 100 and token > NOBODY:
            marks.append((End if state else Start)(10 * (token - TIME)))
            state = not state
    return ((text, *marks) if text else tuple(marks)), state


@hookimpl
def review_output(output: ClipOutput, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> Verdict:
    if NOBODY in output.tokens:
        return NoSpeech()
    if RETRY in output.tokens and context.attempt + 1 < len(attempts(clip, request, context)):
        return Retry("asked to")
    return Accept()
