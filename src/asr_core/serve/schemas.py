"""The shapes of answers as JSON Schema, by the names the API's description has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from asr_core.longform import Reason
from asr_core.plan import Layer
from asr_core.types import GuardKind, StretchState

Schema = Mapping[str, Any]

STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
SECONDS: Schema = {"type": "number", "minimum": 0}
COUNT: Schema = {"type": "integer", "minimum": 0}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
LOGPROB: Schema = {"type": "number", "maximum": 0}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(values)}


def list_of(schema: Schema) -> Schema:
    """Any number of them."""
    return {"type": "array", "items": schema}


def ref(name: str) -> Schema:
    """The shape of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(required: Schema, optional: Schema | None = None) -> Schema:
    """An object with these properties and no others."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_TIMED = {"start": SECONDS, "end": SECONDS}
_TASK = one_of("transcribe", "translate")
_SPOKEN = {"languages": list_of(ref("Language")), "x_asr": ref("Provenance")}
_LOGPROBS = {"logprobs": list_of(ref("LogProbability"))}

SCHEMAS: Mapping[str, Schema] = {
    "Transcription": object_of({"text": STRING, "usage": ref("DurationUsage"), **_SPOKEN}, _LOGPROBS),
    "VerboseTranscription": object_of(
        {
            "task": _TASK,
            "language": STRING,
            "duration": SECONDS,
            "text": STRING,
            "usage": ref("DurationUsage"),
            "x_asr": ref("Provenance"),
        },
        {"segments": list_of(ref("Segment")), "words": list_of(ref("Word"))},
    ),
    "DiarizedTranscription": object_of(
        {
            "task": _TASK,
            "duration": SECONDS,
            "text": STRING,
            "segments": list_of(ref("SpeakerSegment")),
            "usage": ref("DurationUsage"),
            **_SPOKEN,
        }
    ),
    "TextDelta": object_of({"type": one_of("transcript.text.delta"), "delta": STRING}),
    "TextDone": object_of(
        {"type": one_of("transcript.text.done"), "text": STRING, "usage": ref("TokenUsage"), **_SPOKEN}, _LOGPROBS
    ),
    "Segment": object_of(
        {
            "id": COUNT,
            "seek": COUNT,
            **_TIMED,
            "text": STRING,
            "tokens": list_of(INTEGER),
            "temperature": SHARE,
            "avg_logprob": LOGPROB,
            "compression_ratio": {"type": "number", "minimum": 0},
            "no_speech_prob": SHARE,
        }
    ),
    "SpeakerSegment": object_of(
        {"type": one_of("transcript.text.segment"), "id": STRING, **_TIMED, "text": STRING, "speaker": STRING}
    ),
    "Word": object_of({"word": STRING, **_TIMED}),
    "Language": object_of({"code": STRING}),
    "LogProbability": object_of(
        {"token": STRING, "bytes": list_of({"type": "integer", "minimum": 0, "maximum": 255}), "logprob": LOGPROB}
    ),
    "DurationUsage": object_of({"type": one_of("duration"), "seconds": SECONDS}),
    "TokenUsage": object_of(
        {
            "type": one_of("tokens"),
            "input_tokens": COUNT,
            "input_token_details": object_of({"audio_tokens": COUNT, "text_tokens": COUNT}),
            "output_tokens": COUNT,
            "total_tokens": COUNT,
        }
    ),
    "Provenance": object_of(
        {"coverage": list_of(ref("Stretch")), "guards": list_of(ref("Guard"))},
        {"speakers_stable": {"type": "boolean", "enum": [False]}},
    ),
    "Stretch": object_of(
        {"start_sample": COUNT, "end_sample": COUNT, **_TIMED, "state": one_of(*get_args(StretchState))},
        {"note": STRING},
    ),
    "Guard": object_of({"kind": one_of(*get_args(GuardKind)), **_TIMED, "note": STRING}),
    "Plan": object_of(
        {
            "model": STRING,
            "numbers": list_of(ref("Number")),
            "seconds": SECONDS,
            "exact": {"type": "boolean"},
            "clips": list_of(ref("PlannedClip")),
        }
    ),
    "Number": object_of(
        {
            "name": STRING,
            "value": {"type": ["number", "boolean", "null"]},
            "layer": one_of(*get_args(Layer)),
            "owner": STRING,
            "source": STRING,
            "note": STRING,
            "knob": {"type": ["string", "null"]},
        }
    ),
    "PlannedClip": object_of(
        {
            **_TIMED,
            "seconds": SECONDS,
            "decoded": {"type": "boolean"},
            "reason": one_of(*get_args(Reason)),
        }
    ),
    "Model": object_of(
        {
            "id": STRING,
            "object": one_of("model"),
            "created": INTEGER,
            "owned_by": STRING,
            "x_asr": {"type": "object"},
        }
    ),
    "Models": object_of({"object": one_of("list"), "data": list_of(ref("Model"))}),
    "Health": object_of({"status": one_of("ok"), "x_asr": {"type": "object"}}),
    "Ready": object_of({"status": one_of("ready")}),
    "Error": object_of(
        {
            "error": object_of(
                {
                    "message": STRING,
                    "type": one_of("invalid_request_error", "rate_limit_error", "server_error"),
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                    "x_asr": object_of({"layer": STRING}),
                }
            )
        }
    ),
}
"""What any answer with a body in JSON is one of."""
