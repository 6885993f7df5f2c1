"""A transcript as an HTTP answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.responses import JSONResponse, PlainTextResponse, Response

from asr_core.formats import as_dict, to_text
from asr_core.types import Transcript


def to_json_response(transcript: Transcript) -> Response:
    """OpenAI's ``json`` shape; an empty list of languages means that the model does not tell."""
    return JSONResponse(
        {
            "text": transcript.text,
            "languages": [{"code": transcript.language}] if transcript.language else [],
            "usage": {"type": "duration", "seconds": transcript.duration},
            "x_asr": as_dict(transcript)["x_asr"],
        }
    )


def to_text_response(transcript: Transcript) -> Response:
    """Exactly the ``text`` of the ``json`` answer: no quotes, and no line break that the transcript lacks."""
    return PlainTextResponse(to_text(transcript))


FORMATS: Mapping[str, Callable[[Transcript], Response]] = {"json": to_json_response, "text": to_text_response}
"""Answers by ``response_format``."""
