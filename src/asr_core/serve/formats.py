"""A transcript, whole or on its way, as an HTTP answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from starlette.responses import JSONResponse, PlainTextResponse, Response

from asr_core.formats import as_dict, to_srt, to_text, to_vtt
from asr_core.runtime.stream import TextDelta
from asr_core.types import Capabilities, Segment, Transcript, Usage

UNKNOWN_SPEAKER = "unknown"
"""Who said a segment that the model gave no speaker for: OpenAI's shape requires one."""


def to_json_response(transcript: Transcript) -> Response:
    """OpenAI's ``json`` shape; an empty list of languages means that the model does not tell."""
    return JSONResponse({"text": transcript.text, "usage": _duration_usage(transcript)} | _more(transcript))


def to_diarized_response(transcript: Transcript) -> Response:
    """OpenAI's ``diarized_json``: segments with speakers, and a text of one line per segment."""
    segments = [_diarized(number, segment) for number, segment in enumerate(transcript.segments, 1)]
    body = {
        "task": "transcribe",
        "duration": transcript.duration,
        "text": "\n".join(f"{segment['speaker']}: {segment['text']}" for segment in segments),
        "segments": segments,
        "usage": _duration_usage(transcript),
    }
    return JSONResponse(body | _more(transcript))


def to_event(event: TextDelta | Transcript) -> dict[str, Any]:
    """OpenAI's streaming events: a delta, or the end with the tokens that the answer took."""
    if isinstance(event, TextDelta):
        return {"type": "transcript.text.delta", "delta": event.text}
    done = {"type": "transcript.text.done", "text": event.text, "usage": _token_usage(event.usage)}
    return done | _more(event)


def to_text_response(transcript: Transcript) -> Response:
    """Exactly the ``text`` of the ``json`` answer: no quotes, and no line break that the transcript lacks."""
    return PlainTextResponse(to_text(transcript))


def to_srt_response(transcript: Transcript) -> Response:
    """Subtitles, speakers in front of what they say."""
    return PlainTextResponse(to_srt(transcript))


def to_vtt_response(transcript: Transcript) -> Response:
    """The same in WebVTT."""
    return Response(to_vtt(transcript), media_type="text/vtt")


def _diarized(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "type": "transcript.text.segment",
        "id": f"seg_{number:03}",
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "text": segment.text,
        "speaker": segment.speaker or UNKNOWN_SPEAKER,
    }


def _duration_usage(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": transcript.duration}


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


@frozen
class ResponseFormat:
    """How a transcript is answered: ``times`` are what the request asks the model for, ``needs`` what it must can.

    ``streamed`` formats may come as events.
    """

    render: Callable[[Transcript], Response]
    times: frozenset[str] = frozenset()
    needs: str | None = None
    streamed: bool = False

    def is_offered(self, capabilities: Capabilities, stream: bool) -> bool:
        """Whether a model of these ``capabilities`` can answer so."""
        return (self.streamed or not stream) and (self.needs is None or bool(getattr(capabilities, self.needs)))


_SEGMENTS = frozenset({"segment"})

FORMATS: Mapping[str, ResponseFormat] = {
    "json": ResponseFormat(to_json_response, streamed=True),
    "text": ResponseFormat(to_text_response),
    "srt": ResponseFormat(to_srt_response, _SEGMENTS, needs="segment_times"),
    "vtt": ResponseFormat(to_vtt_response, _SEGMENTS, needs="segment_times"),
    "diarized_json": ResponseFormat(to_diarized_response, _SEGMENTS, needs="speakers"),
}
"""By ``response_format``."""
