"""A transcript as text, JSON, SRT or WebVTT; times are integer milliseconds until the last moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from asr_core.types import Segment, Transcript, Word


def to_text(transcript: Transcript) -> str:
    """The bare text."""
    return transcript.text


def to_json(transcript: Transcript) -> str:
    """Everything that is known, for programs; times in seconds."""
    return json.dumps(as_dict(transcript), ensure_ascii=False, allow_nan=False)


def to_srt(transcript: Transcript) -> str:
    """SubRip: numbered cues, ``HH:MM:SS,mmm``."""
    return "".join(
        f"{number}\n{stamp(segment.start_ms, ',')} --> {stamp(segment.end_ms, ',')}\n{_cue(segment)}\n\n"
        for number, segment in enumerate(transcript.segments, 1)
    )


def to_vtt(transcript: Transcript) -> str:
    """WebVTT: ``HH:MM:SS.mmm``, text escaped as the specification asks."""
    cues = (
        f"{stamp(segment.start_ms, '.')} --> {stamp(segment.end_ms, '.')}\n{_escape(_cue(segment))}\n\n"
        for segment in transcript.segments
    )
    return "WEBVTT\n\n" + "".join(cues)


FORMATS: Mapping[str, Callable[[Transcript], str]] = {
    "text": to_text,
    "json": to_json,
    "srt": to_srt,
    "vtt": to_vtt,
}
"""Writers by the name a person types."""

TIMED = frozenset({"srt", "vtt"})
"""Formats that need segment times."""


def stamp(milliseconds: int, separator: str) -> str:
    """``HH:MM:SS`` and milliseconds; hours grow past two digits when they must."""
    seconds, fraction = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{separator}{fraction:03}"


def as_dict(transcript: Transcript) -> dict[str, Any]:
    """The transcript in JSON's types; times in seconds, coverage in samples as the core counts them."""
    return {
        "text": transcript.text,
        "language": transcript.language,
        "duration": transcript.duration,
        "segments": [_segment(segment) for segment in transcript.segments],
        **({"words": [_timed(word) for word in transcript.words]} if transcript.words else {}),
        "x_asr": {
            "coverage": [
                {"start_sample": part.start_sample, "end_sample": part.end_sample, "state": part.state}
                | ({"note": part.note} if part.note else {})
                for part in transcript.coverage
            ],
            "guards": list(transcript.guards),
        },
    }


def _segment(segment: Segment) -> dict[str, Any]:
    return _timed(segment) | ({"speaker": segment.speaker} if segment.speaker else {})


def _timed(timed: Segment | Word) -> dict[str, Any]:
    return {"start": timed.start_ms / 1000, "end": timed.end_ms / 1000, "text": timed.text}


def _cue(segment: Segment) -> str:
    # A blank line would end the cue, so lines are joined.
    text = " ".join(segment.text.split())
    return f"{segment.speaker}: {text}" if segment.speaker else text


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
