"""Clips that hear part of their neighbours: every word, time and sample is told once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from asr_core.errors import PluginError
from asr_core.runtime.stream import TextDelta
from asr_core.types import ChunkPolicy, Samples, Segment, Transcript, TranscriptionRequest

RATE, PER_SECOND, SECONDS = 16_000, 4, 16
EACH = ChunkPolicy(target_s=6.0, overlap_s=1.5, search_s=0.0, min_tail_s=0.0)
OWN = [(0.0, 4.5), (4.5, 7.5), (7.5, 10.5), (10.5, 13.5), (13.5, 16.0)]
HEARD = [(0.0, 6.0), (3.0, 9.0), (6.0, 12.0), (9.0, 15.0), (12.0, 16.0)]
WORDS = [f"word{n}" for n in range(PER_SECOND * SECONDS)]
SOUND = np.full(SECONDS * RATE, 0.5, np.float32)

Heard = tuple[list[TextDelta | Segment], Transcript]
Hear = Callable[..., Heard]


def script(heard: Sequence[tuple[float, float]] = HEARD) -> list[list[list[int]]]:
    """By second of its start, what a clip says: the words of its time, but for those at its ends."""
    said: list[list[list[int]]] = [[] for _ in range(SECONDS)]
    for start, end in heard:
        words = WORDS[int(PER_SECOND * start) : int(PER_SECOND * end)]
        first, last = words[0] if start == 0 else "x", words[-1] if end == SECONDS else "y"
        said[int(start)] = [list(" ".join([first, *words[1:-1], last]).encode())]
    return said


@pytest.fixture(scope="module")
def hear(opened: Any, streamed: Any) -> Hear:
    def hear(
        name: str,
        policy: ChunkPolicy = EACH,
        said: Sequence[Any] | None = None,
        sound: Samples = SOUND,
        **fields: Any,
    ) -> Heard:
        served = evolve(opened(name).served, chunk_policy=policy)
        request = TranscriptionRequest(options={"script": json.dumps(said or script())}, **fields)
        *events, transcript = streamed(served, sound, request, segments=True)
        return events, transcript

    return hear


NAMES = ("scripted-token", "scripted-segment", "scripted-clip", "scripted-flush")


@pytest.mark.parametrize("name", NAMES)
def test_every_word_is_told_once_and_every_sample_accounted(hear: Hear, name: str) -> None:
    events, transcript = hear(name)
    assert transcript.text == " ".join(WORDS)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == transcript.text
    assert [(one.start_sample / RATE, one.end_sample / RATE) for one in transcript.coverage] == OWN


@pytest.mark.parametrize("name", NAMES)
def test_clips_that_begin_in_a_rest_hear_nothing_before_it(hear: Hear, name: str) -> None:
    sound = SOUND.copy()
    for rest in (4.25, 8.35, 12.3):
        sound[round((rest - 0.25) * RATE) : round((rest + 0.25) * RATE)] = 0
    said = script([(0.0, 5.75), (4.25, 9.75), (8.25, 13.75), (12.25, 16.0)])
    events, transcript = hear(name, evolve(EACH, search_s=2.0), said, sound, times=frozenset({"segment"}))
    assert transcript.text == " ".join(WORDS)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == transcript.text
    assert [event for event in events if isinstance(event, Segment)] == list(transcript.segments)
    starts = [one.start_sample / RATE for one in transcript.coverage]
    assert starts == pytest.approx([0, 4.25, 8.35, 12.3], abs=0.05)


def test_the_answer_is_the_same_however_many_are_heard_at_once(hear: Hear) -> None:
    answers = [hear("scripted-token", evolve(EACH, parallel=parallel))[1] for parallel in (1, 2, 8)]
    assert len({(answer.text, answer.segments, answer.coverage) for answer in answers}) == 1


def test_segments_and_tokens_are_those_of_what_is_told(hear: Hear) -> None:
    events, transcript = hear("scripted-segment")
    assert [event for event in events if isinstance(event, Segment)] == list(transcript.segments)
    assert " ".join(segment.text for segment in transcript.segments) == transcript.text
    assert all(bytes(segment.tokens).decode().strip() == segment.text for segment in transcript.segments)
    assert all(len(segment.tokens) == len(segment.logprobs) for segment in transcript.segments)
    assert "".join(token.text for token in transcript.tokens).replace(" ", "") == "".join(WORDS)


def test_times_are_in_order_and_near_the_words(hear: Hear) -> None:
    _, transcript = hear("scripted-segment")
    segments = transcript.segments
    assert all(one.start_ms <= one.end_ms <= other.start_ms for one, other in pairwise(segments))
    for segment in segments:
        first, last = (WORDS.index(word) / PER_SECOND for word in (segment.text.split()[0], segment.text.split()[-1]))
        assert segment.start_ms / 1000 == pytest.approx(first, abs=0.5)
        assert segment.end_ms / 1000 == pytest.approx(last + 1 / PER_SECOND, abs=0.5)


def test_the_first_text_is_told_before_the_third_clip_begins(opened: Any, streamed: Any) -> None:
    # That one fails at once, and by then what the first two say has been told.
    said, events = script(), list[Any]()
    said[6] = []
    served = evolve(opened("scripted-token").served, chunk_policy=evolve(EACH, parallel=8))
    with pytest.raises(PluginError, match=r"clip 3 of 5, 7\.50 s to 10\.50 s"):
        streamed(served, SOUND, TranscriptionRequest(options={"script": json.dumps(said)}), events)
    told = "".join(event.text for event in events).split()
    assert told == WORDS[: len(told)]
    assert len(told) > 3 * PER_SECOND


def test_a_clip_that_says_nothing_leaves_what_the_next_one_heard(hear: Hear) -> None:
    said = script()
    said[0] = [[]]
    _, transcript = hear("scripted-token", said=said)
    assert transcript.text == " ".join(["x", *WORDS[PER_SECOND * 3 + 1 :]])
