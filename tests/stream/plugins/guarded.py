"""The scripted model with any fault: its option ``script`` says what it puts out for the clip between two seconds.

A key is both, as in ``0-2.5``, or where it starts; with a plus, for a clip with the text of the one before. There are
as many attempts as texts. ``<1.5>`` is a time, of a start where no segment is open; ``{retry}`` and ``{nobody}`` are
read by its review, ``{budget}`` has it end after 100 tokens.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from asr_scripted import encode_batch, extract_features, load_weights, native_limit, prepare_frontend

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
)

__all__ = ["encode_batch", "extract_features", "load_weights", "native_limit", "prepare_frontend"]

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
    return Capabilities(
        options=(OptionSpec("script", "string", "what to say"),), segment_times=True, prompt="previous_text"
    )


@hookimpl
def streaming_policy(model: Any) -> StreamingPolicy:
    return StreamingPolicy(commit=model.card.name.split("-")[1], review_tokens=1)


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
