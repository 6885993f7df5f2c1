"""From a prepared clip and its encoded spans to what an engine is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

from asr_core.engines.protocol import EncodedRows, GenerationRequest, PromptInput
from asr_core.types import Alignment, AudioSlice, AudioSpan, PreparedClip, Probe, PromptPart

Encoded = Mapping[AudioSpan, EncodedRows]
"""Rows of every span of a clip."""


def generation_request(prepared: PreparedClip, encoded: Encoded, caller: str) -> GenerationRequest:
    """The clip itself, in the name of ``caller``."""
    return GenerationRequest(
        id=uuid4().hex,
        prompt=_prompt(prepared, prepared.prompt, encoded),
        cross=_cross(prepared, encoded),
        given=prepared.given,
        stop=prepared.stop,
        budget=prepared.budget,
        sampling=prepared.sampling,
        rules=prepared.rules,
        caller=caller,
    )


def probe_request(prepared: PreparedClip, probe: Probe, encoded: Encoded, caller: str) -> GenerationRequest:
    """A question about the clip: one token, of which only the inspected log-probabilities matter."""
    prompt = _prompt(prepared, probe.prompt, encoded)
    return GenerationRequest(
        uuid4().hex, prompt, cross=_cross(prepared, encoded), inspect=probe.token_ids, caller=caller
    )


def alignment_request(prepared: PreparedClip, alignment: Alignment, encoded: Encoded, caller: str) -> GenerationRequest:
    """A question about the clip: one token, of which only the attention matters."""
    cross = _cross(prepared, encoded)
    return GenerationRequest(uuid4().hex, (alignment.prompt,), cross=cross, attend=alignment.heads, caller=caller)


def _cross(prepared: PreparedClip, encoded: Encoded) -> EncodedRows | None:
    return None if prepared.cross is None else encoded[prepared.spans[prepared.cross]]


def _prompt(prepared: PreparedClip, parts: Sequence[PromptPart], encoded: Encoded) -> tuple[PromptInput, ...]:
    """The parts with encoder rows in place of the slices that name them."""
    return tuple(
        _slice(encoded[prepared.spans[part.span]], part) if isinstance(part, AudioSlice) else part for part in parts
    )


def _slice(whole: EncodedRows, part: AudioSlice) -> EncodedRows:
    place = part.first.to_bytes(4, "little") + part.count.to_bytes(4, "little")
    return EncodedRows(whole.rows[part.first : part.first + part.count], whole.key + place)
