"""A transcript as the objects of OpenAI's API, whole or on its way; what they lack is under ``x_asr``."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from typing import Any

from attrs import define, frozen

from asr_core.clips import Event
from asr_core.formats import provenance
from asr_core.languages import language_name
from asr_core.runtime.stream import TextDelta
from asr_core.types import Segment, SpokenToken, Task, Transcript, Usage, Word

UNKNOWN = "unknown"
"""Language or speaker of a model that does not tell: OpenAI's shapes require one."""

LEAST_LOGPROB = -9999.0
"""What OpenAI writes for a token that is very unlikely: JSON has no infinity."""

SEEK_MS = 10
"""OpenAI's unit of ``seek``."""


@frozen
class View:
    """What of a transcript its caller is shown.

    ``language`` is the English name of the language the route answers in, None where it is the transcript's.
    ``granularities`` are what a verbose answer gives times for.
    """

    task: Task
    language: str | None = None
    granularities: frozenset[str] = frozenset({"segment"})
    logprobs: bool = False

    @classmethod
    def of(cls, task: Task, language: str | None, granularities: Iterable[str], include: Iterable[str]) -> View:
        """What the fields of a request say; segments unless it says otherwise."""
        return cls(task, language, frozenset(granularities) or frozenset({"segment"}), "logprobs" in include)


def json_body(transcript: Transcript, view: View) -> dict[str, Any]:
    """``json``; an empty list of languages means that the model does not tell."""
    return {"text": transcript.text, "usage": _duration_usage(transcript)} | _more(transcript, view)


def verbose_body(transcript: Transcript, view: View) -> dict[str, Any]:
    """``verbose_json``, with the sections the caller asked times for and no others."""
    known = language_name(transcript.language) if transcript.language else UNKNOWN
    body = {
        "task": view.task,
        "language": view.language or known,
        "duration": transcript.duration,
        "text": transcript.text,
        "usage": _duration_usage(transcript),
        "x_asr": provenance(transcript),
    }
    if "segment" in view.granularities:
        body["segments"] = [_verbose_segment(number, segment) for number, segment in enumerate(transcript.segments)]
    if "word" in view.granularities:
        body["words"] = [_word(word) for word in transcript.words]
    return body


def diarized_body(transcript: Transcript, view: View) -> dict[str, Any]:
    """``diarized_json``: segments with speakers, and a text of one line per segment."""
    segments = [_diarized(number, segment) for number, segment in enumerate(transcript.segments, 1)]
    body = {
        "task": view.task,
        "duration": transcript.duration,
        "text": "\n".join(f"{segment['speaker']}: {segment['text']}" for segment in segments),
        "segments": segments,
        "usage": _duration_usage(transcript),
    }
    return body | _more(transcript, view)


@define(eq=False)
class EventBodies:
    """The events of one answer, in order: its segments are numbered as they are in the whole."""

    view: View
    segments: int = 0

    def of(self, event: Event | Transcript) -> dict[str, Any]:
        """A delta, a segment, or the end with the tokens that the answer took.

        The text of the end is what the deltas add up to, also where the whole answer would have a line per speaker.
        """
        if isinstance(event, TextDelta):
            return {"type": "transcript.text.delta", "delta": event.text}
        if isinstance(event, Segment):
            self.segments += 1
            return _diarized(self.segments, event)
        done = {"type": "transcript.text.done", "text": event.text, "usage": _token_usage(event.usage)}
        return done | _more(event, self.view)


def _verbose_segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": segment.clip_ms // SEEK_MS,
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": _finite(segment.mean_logprob),
        "compression_ratio": _compression_ratio(segment.text),
        "no_speech_prob": segment.no_speech_prob,
    }


def _compression_ratio(text: str) -> float:
    """Bytes of UTF-8 over the same after zlib: what repeats itself is above 2, no text at all is 0."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def _word(word: Word) -> dict[str, Any]:
    return {"word": word.text, "start": word.start_ms / 1000, "end": word.end_ms / 1000}


def _diarized(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "type": "transcript.text.segment",
        "id": f"seg_{number:03}",
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "text": segment.text,
        "speaker": segment.speaker or UNKNOWN,
    }


def _more(transcript: Transcript, view: View) -> dict[str, Any]:
    codes = transcript.languages or ((transcript.language,) if transcript.language else ())
    more = {"languages": [{"code": code} for code in codes], "x_asr": provenance(transcript)}
    return more | ({"logprobs": [_logprob(token) for token in transcript.tokens]} if view.logprobs else {})


def _logprob(token: SpokenToken) -> dict[str, Any]:
    return {"token": token.text, "bytes": list(token.text.encode()), "logprob": _finite(token.logprob)}


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB


def _duration_usage(transcript: Transcript) -> dict[str, Any]:
    # In whole seconds, the last one begun, as in OpenAI's examples: 9 for 8.47.
    return {"type": "duration", "seconds": math.ceil(transcript.duration)}


def _token_usage(usage: Usage) -> dict[str, Any]:
    read = usage.audio_tokens + usage.text_tokens
    return {
        "type": "tokens",
        "input_tokens": read,
        "input_token_details": {"audio_tokens": usage.audio_tokens, "text_tokens": usage.text_tokens},
        "output_tokens": usage.output_tokens,
        "total_tokens": read + usage.output_tokens,
    }
