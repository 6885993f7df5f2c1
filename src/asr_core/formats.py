"""A transcript as text, JSON, SRT or WebVTT; times are integer milliseconds until the last moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from asr_core.types import Guard, Segment, Stretch, StretchState, Transcript, Word


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


def covered(transcript: Transcript) -> dict[str, float]:
    """Seconds of the audio by what became of them; lost ones are speech without text, as holes have no length."""
    seconds = dict.fromkeys(get_args(StretchState), 0.0)
    for part in provenance(transcript)["coverage"]:
        seconds[part["state"]] += part["end"] - part["start"]
    return seconds


def holes(transcript: Transcript) -> int:
    """Places where the audio decoder could not read."""
    return sum(part.state == "lost" and part.start_sample == part.end_sample for part in transcript.coverage)


def as_dict(transcript: Transcript) -> dict[str, Any]:
    """The transcript in JSON's types; times in seconds."""
    return {
        "text": transcript.text,
        "language": transcript.language,
        "duration": transcript.duration,
        "segments": [_segment(segment) for segment in transcript.segments],
        **({"words": [_timed(word) for word in transcript.words]} if transcript.words else {}),
        "x_asr": provenance(transcript),
    }


def provenance(transcript: Transcript) -> dict[str, Any]:
    """What became of the audio, in seconds and in samples as the core counts them, and what guards did."""
    # The coverage has all samples of the audio, so its end is its length.
    length = max([part.end_sample for part in transcript.coverage], default=0)
    rate = round(length / transcript.duration) if length else 1
    coverage = [_stretch(part, rate) for part in transcript.coverage]
    guards = [_guard(guard) for guard in transcript.guards]
    unstable = {} if transcript.stable_speakers else {"speakers_stable": False}
    return {"coverage": coverage, "guards": guards, **unstable}


def _stretch(stretch: Stretch, rate: int) -> dict[str, Any]:
    samples = {"start_sample": stretch.start_sample, "end_sample": stretch.end_sample}
    seconds = {"start": stretch.start_sample / rate, "end": stretch.end_sample / rate}
    return samples | seconds | {"state": stretch.state} | ({"note": stretch.note} if stretch.note else {})


def _guard(guard: Guard) -> dict[str, Any]:
    return {"kind": guard.kind, "start": guard.start_ms / 1000, "end": guard.end_ms / 1000, "note": guard.note}


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
