"""The fake model under a plugin that strains the contract in the way its option ``odd`` names."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve

import asr_core.testing.fake as fake
from asr_core import ModelCard, hookimpl
from asr_core.errors import InvalidRequestError
from asr_core.testing.fake import decode_tokens, extract_features, load_weights, native_limit, prepare_frontend
from asr_core.types import (
    Accept,
    Ask,
    AudioSlice,
    AudioSpan,
    Capabilities,
    Checkpoint,
    Clip,
    ClipContext,
    ClipOutput,
    Feature,
    NoSpeech,
    OptionSpec,
    PreparedClip,
    Probe,
    Retry,
    TranscriptionRequest,
    Verdict,
)

__all__ = ["decode_tokens", "extract_features", "load_weights", "native_limit", "prepare_frontend"]

SECOND = 16_000


@hookimpl
def register_models(register: Any) -> None:
    register(ModelCard("odd"))


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    return Checkpoint("odd", ref, path=None) if ref == "odd" else None


@hookimpl
def capabilities() -> Capabilities:
    return Capabilities(options=(OptionSpec("odd", "string", "what to do"),), prompt="vocabulary", segment_times=True)


@hookimpl
def check_request(request: TranscriptionRequest) -> None:
    if "<|" in (request.prompt or ""):
        raise InvalidRequestError("prompt holds a special token", param="prompt")


@hookimpl
def prepare_clip(clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    prepared: PreparedClip = fake.prepare_clip(clip, TranscriptionRequest())
    match request.options.get("odd"):
        case "no budget":
            return evolve(prepared, budget=0)
        case "no stop":
            return evolve(prepared, stop=frozenset())
        case "slice beyond":
            return evolve(prepared, prompt=(AudioSlice(0, 0, prepared.spans[0].tokens + 1),))
        case "slice of nothing":
            return evolve(prepared, prompt=(AudioSlice(3, 0, 1),))
        case "cross beyond":
            return evolve(prepared, cross=1)
        case "span beyond":
            return evolve(prepared, spans=(AudioSpan(0, len(clip.samples) + 1, 1),))
        case "fewer rows":
            return evolve(prepared, spans=(evolve(prepared.spans[0], tokens=prepared.spans[0].tokens + 1),))
        case "probe for ever":
            return evolve(prepared, probes=tuple(_probe(str(n)) for n in range(len(context.probe_results) + 1)))
        case "probe":
            first = context.probe_results.get("first", (0.0,))[0]
            # The fake's first token is certain: its log-probability is 0, and far below for any other.
            return evolve(prepared, probes=(_probe("first"),), budget=3 if first < -50 else prepared.budget)
    return prepared


def _probe(name: str) -> Probe:
    return Probe(name, prompt=((fake.FIRST_BEHAVIOUR,),), token_ids=(fake.STOP,))


@hookimpl
def encode_batch(features: Sequence[Feature]) -> Any:
    return fake.encode_batch(features)


@hookimpl
def review_output(
    output: ClipOutput, clip: Clip, request: TranscriptionRequest, context: ClipContext
) -> Verdict | None:
    whole = len(clip.samples)
    match request.options.get("odd"):
        case "never content":
            return Retry("not yet")
        case "content at the third":
            return Accept() if context.attempt == 2 else Retry(f"attempt {context.attempt} after {context.reason}")
        case "ask":
            if context.attempt == 0 and not context.probe_results:
                return Ask((_probe("first"),))
            known = context.probe_results["first"][0] < -50
            return Retry("answered") if known and context.attempt == 0 else Accept()
        case "ask for ever":
            return Ask((_probe(str(len(context.probe_results))),))
        case "ask of nothing":
            return Ask((Probe("rows", prompt=(AudioSlice(3, 0, 1),), token_ids=(fake.STOP,)),))
        case "nobody":
            return NoSpeech()
        case "resume":
            return Accept(SECOND) if clip.start_sample == 0 else Accept(whole)
        case "resume at once":
            return Accept(1)
        case "resume nowhere":
            return Accept(0)
        case "resume beyond":
            return Accept(whole + 1)
    return None
