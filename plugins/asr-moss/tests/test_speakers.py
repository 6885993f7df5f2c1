"""Who said what and when, from sound to subtitles: a model that was taught what to say."""

from __future__ import annotations

import pytest

from asr_core.api import Transcriber
from asr_core.formats import to_srt, to_text, to_vtt
from asr_core.types import Samples, Transcript

from .conftest import ANSWER, QUESTION, RATE

SRT = """1
00:00:00,120 --> 00:00:01,880
S01: The quick brown fox.

2
00:00:02,500 --> 00:00:04,750
S02: Nobody heard <it> & left.

3
00:00:04,750 --> 00:00:05,900
S01: 看[笑]到了

"""


@pytest.fixture(scope="module")
def transcript(taught: Transcriber, reading: Samples) -> Transcript:
    return taught.transcribe(reading[: 6 * RATE])


def test_segments_have_speakers_and_times(transcript: Transcript) -> None:
    found = [(one.start_ms, one.end_ms, one.speaker, one.text) for one in transcript.segments]
    assert found == [
        (120, 1880, "S01", "The quick brown fox."),
        (2500, 4750, "S02", "Nobody heard <it> & left."),
        (4750, 5900, "S01", "看[笑]到了"),
    ]


def test_marks_are_not_text(transcript: Transcript) -> None:
    """Words are parted where segments meet, Chinese is not."""
    assert to_text(transcript) == "The quick brown fox. Nobody heard <it> & left.看[笑]到了"


def test_subtitles_name_the_speaker(transcript: Transcript) -> None:
    assert to_srt(transcript) == SRT
    assert "00:02.500 --> 00:00:04.750\nS02: Nobody heard &lt;it&gt; &amp; left.\n" in to_vtt(transcript)


def test_times_are_there_when_nobody_asks(taught: Transcriber, reading: Samples, transcript: Transcript) -> None:
    asked = taught.transcribe(reading[: 6 * RATE], times=["segment"])
    assert [one.start_ms for one in asked.segments] == [one.start_ms for one in transcript.segments]


def test_an_answer_without_marks_is_one_segment(taught: Transcriber, reading: Samples) -> None:
    transcript = taught.transcribe(reading[: 6 * RATE], prompt=QUESTION)
    assert transcript.text == ANSWER
    assert [(one.start_ms, one.end_ms, one.speaker, one.text) for one in transcript.segments] == [
        (0, 6000, None, ANSWER)
    ]
