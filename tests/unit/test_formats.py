"""Subtitles as players read them, JSON as programs do."""

from __future__ import annotations

import json
import re

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from asr_core.formats import FORMATS, stamp, to_json, to_srt, to_vtt
from asr_core.types import Segment, Transcript, Word

TRANSCRIPT = Transcript(
    text="Ja & nein <ok>",
    language="de",
    duration=3700.0,
    segments=(Segment(0, 59_999, "Ja &\n\nnein", speaker="A"), Segment(3_599_999, 3_600_000, "<ok>")),
)


def test_srt() -> None:
    assert to_srt(TRANSCRIPT) == (
        "1\n00:00:00,000 --> 00:00:59,999\nA: Ja & nein\n\n2\n00:59:59,999 --> 01:00:00,000\n<ok>\n\n"
    )


def test_vtt() -> None:
    assert to_vtt(TRANSCRIPT) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:59.999\nA: Ja &amp; nein\n\n00:59:59.999 --> 01:00:00.000\n&lt;ok&gt;\n\n"
    )


def test_json_is_in_seconds() -> None:
    read = json.loads(to_json(TRANSCRIPT))
    assert read["segments"][0] == {"start": 0.0, "end": 59.999, "text": "Ja &\n\nnein", "speaker": "A"}
    assert (read["text"], read["language"], read["duration"]) == ("Ja & nein <ok>", "de", 3700.0)


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_said_is_written_without_complaint(name: str) -> None:
    assert isinstance(FORMATS[name](Transcript("", None, 0.0)), str)


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "00:00:00,000"),
        (1_000, "00:00:01,000"),
        (4_100, "00:00:04,100"),
        (59_999, "00:00:59,999"),
        (60_000, "00:01:00,000"),
        (3_599_999, "00:59:59,999"),
        (3_600_000, "01:00:00,000"),
        (36_000_000, "10:00:00,000"),
        (360_000_000, "100:00:00,000"),
    ],
)
def test_stamps_carry(milliseconds: int, shown: str) -> None:
    assert stamp(milliseconds, ",") == shown


def test_json_has_words_if_there_are_any() -> None:
    timed = evolve(TRANSCRIPT, words=(Word(3_599_999, 3_600_000, "ok"),))
    assert json.loads(to_json(timed))["words"] == [{"start": 3599.999, "end": 3600.0, "text": "ok"}]
    assert "words" not in json.loads(to_json(TRANSCRIPT))


@given(st.integers(0, 400 * 3_600_000))
def test_stamps_read_back_to_the_millisecond(milliseconds: int) -> None:
    match = re.fullmatch(r"(\d{2,}):([0-5]\d):([0-5]\d),(\d{3})", stamp(milliseconds, ","))
    assert match
    hours, minutes, seconds, fraction = map(int, match.groups())
    assert ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction == milliseconds
