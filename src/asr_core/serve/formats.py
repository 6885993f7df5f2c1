"""A transcript, whole or on its way, as an HTTP answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from asr_core.formats import as_dict, to_text
from asr_core.runtime.stream import TextDelta
from asr_core.types import Transcript, Usage


def to_json_response(transcript: Transcript) -> Response:
    """OpenAI's ``json`` shape; an empty list of languages means that the model does not tell."""
    usage = {"type": "duration", "seconds": transcript.duration}
    return JSONResponse({"text": transcript.text, "usage": usage} | _more(transcript))


def to_event(event: TextDelta | Transcript) -> dict[str, Any]:
    """OpenAI's streaming events: a delta, or the end with the tokens that the answer took."""
    if isinstance(event, TextDelta):
        return {"type": "transcript.text.delta", "delta": event.text}
    done = {"type": "transcript.text.done", "text": event.text, "usage": _token_usage(event.usage)}
    return done | _more(event)


def to_text_response(transcript: Transcript) -> Response:
    """Exactly the ``text`` of the ``json`` answer: no quotes, and no line break that the transcript lacks."""
    return PlainTextResponse(to_text(transcript))


def _more(transcript: Transcript) -> dict[str, Any]:
    languages = [{"code": transcript.language}] if transcript.language else []
    return {"languages": languages, "x_asr": as_dict(transcript)["x_asr"]}


def _token_usage(usage: Usage) -> dict[str, Any]:
    read = usage.audio_tokens + usage.text_tokens
    return {
        "type": "tokens",
        "input_tokens": read,
        "input_token_details": {"audio_tokens": usage.audio_tokens, "text_tokens": usage.text_tokens},
        "output_tokens": usage.output_tokens,
        "total_tokens": read + usage.output_tokens,
    }


FORMATS: Mapping[str, Callable[[Transcript], Response]] = {"json": to_json_response, "text": to_text_response}
"""Answers by ``response_format``."""
