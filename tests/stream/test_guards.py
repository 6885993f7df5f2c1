"""Text that ends early, repeats itself, is said in silence or at impossible times: mended or at least reported.

Sound is made so that it is known where somebody speaks. Every guard has its control: the same output where it is right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from asr_core.api import Transcriber
from asr_core.types import Samples, Transcript, TranscriptionRequest

RATE = 16_000

Say = Callable[..., tuple[list[str], Transcript]]


def noise(seconds: float, level: float) -> Samples:
    samples = np.random.default_rng(6).uniform(-level, level, round(seconds * RATE))
    return samples.astype(np.float32)


def voice(seconds: float) -> Samples:
    """Syllables of 200 ms in noise that is 40 dB softer: four fifths of it are voiced."""
    syllables = np.arange(round(seconds * RATE)) % (RATE // 4) < RATE // 5
    return np.where(syllables, noise(seconds, 0.3), noise(seconds, 0.003)).astype(np.float32)


def hush(seconds: float) -> Samples:
    return noise(seconds, 0.003)


def nothing(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


@pytest.fixture
def say(opened: Callable[[str], Transcriber], streamed: Any) -> Say:
    """Deltas and transcript of what the model says by clip, after the checks that hold for all of them."""

    def say(script: dict[str, Any], sound: Samples, name: str = "guarded-clip", **policy: Any) -> Any:
        served = opened(name).served
        served = evolve(served, chunk_policy=evolve(served.chunk_policy, **policy))
        request = TranscriptionRequest(options={"script": json.dumps(script)})
        *events, transcript = streamed(served, sound, request)
        assert "".join(event.text for event in events) == transcript.text
        ends = [0, *(part.end_sample for part in transcript.coverage)]
        assert [part.start_sample for part in transcript.coverage] == ends[:-1]
        assert ends[-1] == len(sound)
        assert all(0 <= guard.start_ms <= guard.end_ms <= 1000 * len(sound) / RATE for guard in transcript.guards)
        return [event.text for event in events], transcript

    return say


def coverage(transcript: Transcript) -> list[tuple[float, str]]:
    return [(part.end_sample / RATE, part.state) for part in transcript.coverage]


def guards(transcript: Transcript) -> list[tuple[str, float, float]]:
    return [(guard.kind, guard.start_ms / 1000, guard.end_ms / 1000) for guard in transcript.guards]


@pytest.mark.parametrize("name", ["guarded-clip", "guarded-segment"])
def test_speech_behind_the_last_time_is_decoded_anew(say: Say, name: str) -> None:
    script = {"0": "<0>one two three<4>", "4": "<0>four five six seven<6>"}
    _, transcript = say(script, voice(10), name)
    assert transcript.text == "one two three four five six seven"
    assert coverage(transcript) == [(4, "decoded"), (10, "redecoded")]
    assert guards(transcript) == [("early_end", 4, 10)]
    assert [(one.start_ms, one.end_ms) for one in transcript.segments] == [(0, 4000), (4000, 10_000)]


def test_noise_behind_the_last_time_is_no_speech(say: Say) -> None:
    _, transcript = say({"0": "<0>one two three<4>"}, np.concatenate([voice(4), hush(6)]))
    assert (coverage(transcript), transcript.guards) == ([(10, "decoded")], ())


def test_what_has_no_text_the_second_time_is_lost(say: Say) -> None:
    _, transcript = say({"0": "<0>one two three<4>", "4": ""}, voice(10))
    assert transcript.text == "one two three"
    assert coverage(transcript) == [(4, "decoded"), (10, "lost")]
    assert guards(transcript) == [("early_end", 4, 10), ("early_end", 4, 10)]


def test_a_model_that_makes_no_headway_is_given_up(say: Say) -> None:
    script = {"0": "<0>one two three<4>", "4": "<0>four<0.2>"}
    _, transcript = say(script, voice(10))
    assert transcript.text == "one two three four"
    assert coverage(transcript) == [(4, "decoded"), (4.2, "redecoded"), (10, "lost")]


def test_speech_between_segments_is_reported(say: Say) -> None:
    script = {"0": "<2>one two three<4><6>four five six seven<10>"}
    _, transcript = say(script, voice(10))
    assert coverage(transcript) == [(2, "lost"), (4, "decoded"), (6, "lost"), (10, "decoded")]
    assert guards(transcript) == [("early_end", 0, 2), ("early_end", 4, 6)]
    pauses = np.concatenate([hush(2), voice(2), hush(2), voice(4)])
    assert say(script, pauses)[1].guards == ()


def test_text_that_is_moved_to_the_end_is_not_decoded_again(say: Say) -> None:
    script = {"0": "<0>one two three<4><8> four five six<9>", "4": "<0>four five six<3>"}
    _, transcript = say(script, voice(7))
    assert transcript.text == "one two three four five six"
    assert [(one.start_ms, one.end_ms) for one in transcript.segments] == [(0, 4000), (7000, 7000)]
    assert coverage(transcript) == [(4, "decoded"), (7, "lost")]
    assert guards(transcript) == [("times", 0, 7), ("early_end", 4, 7)]


HALVES = np.concatenate([voice(5), nothing(0.12), voice(5)])
"""It is quietest a bit behind 5 s."""

PLENTY = "as much text as one says in a few seconds"


def test_too_little_text_is_decoded_anew_in_parts(say: Say) -> None:
    script = {"0-10.1": "one", "0-5.1": f"{PLENTY}, twice:", "5.1": PLENTY}
    _, transcript = say(script, HALVES)
    assert transcript.text == f"{PLENTY}, twice: {PLENTY}"
    assert [part.state for part in transcript.coverage] == ["redecoded", "redecoded"]
    assert transcript.coverage[0].end_sample / RATE == pytest.approx(5.06, abs=0.02)
    assert guards(transcript) == [("early_end", 0, 10.12)]
    assert guards(say({"0": PLENTY}, HALVES)[1]) == []


def test_a_part_without_text_is_lost(say: Say) -> None:
    _, transcript = say({"0-10.1": "", "0-5.1": PLENTY, "5.1": ""}, HALVES)
    assert [part.state for part in transcript.coverage] == ["redecoded", "lost"]
    assert [guard.kind for guard in transcript.guards] == ["early_end", "early_end"]


def test_too_little_text_that_was_sent_is_reported(say: Say) -> None:
    _, transcript = say({"0": "one"}, HALVES, "guarded-token")
    assert (transcript.text, coverage(transcript)) == ("one", [(10.12, "decoded")])
    assert guards(transcript) == [("early_end", 0, 10.12)]
    assert transcript.coverage[0].note


def test_a_short_clip_without_text_is_lost_unless_the_model_says_that_nobody_speaks(say: Say) -> None:
    assert coverage(say({"0": ""}, voice(2))[1]) == [(2, "lost")]
    _, transcript = say({"0": "{nobody}"}, voice(10))
    assert (coverage(transcript), transcript.guards) == ([(10, "silent")], ())


LOOP = "I am going home. "
ENOUGH = "Words enough for all of the five seconds. "


@pytest.mark.parametrize("name", ["guarded-clip", "guarded-segment"])
def test_a_loop_ends_generation_and_is_cut_to_one(say: Say, name: str) -> None:
    _, transcript = say({"0": ENOUGH + LOOP * 1000}, voice(5), name)
    assert transcript.text == ENOUGH + LOOP.strip()
    assert guards(transcript) == [("loop", 0, 5)]
    assert "".join(token.text for token in transcript.tokens).strip() == transcript.text
    assert transcript.usage.output_tokens < 10 * len(LOOP) + len(ENOUGH)
    (segment,) = transcript.segments
    assert segment.text == transcript.text


def test_what_was_sent_of_a_loop_stays(say: Say) -> None:
    deltas, transcript = say({"0": ENOUGH + LOOP * 1000}, voice(5), "guarded-token")
    assert transcript.text.startswith(ENOUGH + LOOP * 5)
    assert len(transcript.text) < len(ENOUGH + LOOP * 8)
    assert guards(transcript) == [("loop", 0, 5)]
    assert len(deltas) > 100


def test_what_people_repeat_stays(say: Say) -> None:
    text = ENOUGH + LOOP * 4
    _, transcript = say({"0": text}, voice(5))
    assert (transcript.text, transcript.guards) == (text.strip(), ())


def test_the_review_is_asked_first_about_a_loop(say: Say) -> None:
    _, transcript = say({"0": ["{retry}" + LOOP * 1000, ENOUGH]}, voice(5))
    assert transcript.text == ENOUGH.strip()
    assert guards(transcript) == [("retry", 0, 5)]


def test_a_loop_over_times_is_cut_and_the_rest_decoded_anew(say: Say) -> None:
    loop = "".join(f"<{at}>{LOOP}<{at + 1}>" for at in range(1, 60))
    script = {"0": f"<0>{ENOUGH}<1>{loop}", "2": f"<0>{ENOUGH}<8>"}
    _, transcript = say(script, voice(10))
    assert transcript.text == ENOUGH + LOOP + ENOUGH.strip()
    assert [(one.start_ms, one.end_ms) for one in transcript.segments] == [(0, 1000), (1000, 2000), (2000, 10_000)]
    assert coverage(transcript) == [(2, "decoded"), (10, "redecoded")]
    assert [guard.kind for guard in transcript.guards] == ["loop", "early_end"]


def test_a_loop_that_comes_again_is_no_headway(say: Say) -> None:
    loop = "".join(f"<{at}>{LOOP}<{at + 1}>" for at in range(60))
    _, transcript = say({"0": f"<0>{ENOUGH}<2>", "2": loop}, voice(10))
    assert transcript.text == ENOUGH + LOOP.strip()
    assert coverage(transcript) == [(2, "decoded"), (3, "redecoded"), (10, "lost")]
    assert [guard.kind for guard in transcript.guards] == ["early_end", "loop", "early_end"]


@pytest.mark.parametrize("name", ["guarded-clip", "guarded-segment", "guarded-token"])
def test_what_is_behind_the_last_time_before_a_loop_is_lost(say: Say, name: str) -> None:
    script = {"0": f"<0>{ENOUGH}<2><2>{LOOP * 1000}"}
    _, transcript = say(script, voice(10), name)
    assert transcript.text.startswith(ENOUGH + LOOP.strip())
    assert coverage(transcript) == [(2, "decoded"), (10, "lost")]
    assert guards(transcript) == [("loop", 0, 10), ("early_end", 2, 10)]
    _, transcript = say(script, np.concatenate([voice(2), hush(8)]), name)
    assert (coverage(transcript), guards(transcript)) == ([(10, "decoded")], [("loop", 0, 10)])


def test_all_is_lost_but_the_text_where_a_loop_comes_before_any_end(say: Say) -> None:
    _, transcript = say({"0": f"<0>{ENOUGH}{LOOP * 1000}"}, voice(10))
    assert transcript.text == ENOUGH + LOOP.strip()
    assert coverage(transcript) == [(10, "lost")]
    assert guards(transcript) == [("loop", 0, 10), ("early_end", 0, 10)]


def test_a_loop_under_carried_text_is_decoded_without_it(say: Say) -> None:
    script = {"0": ENOUGH, "5": ENOUGH, "5+": "{retry}" + LOOP * 1000}
    policy = {"carry_text": True, "target_s": 5.0, "search_s": 0.0}
    _, transcript = say(script, voice(10), **policy)
    assert transcript.text == ENOUGH + ENOUGH.strip()
    assert guards(transcript) == [("retry", 5, 10)]
    stubborn = {"0": ENOUGH, "5": LOOP * 1000, "5+": LOOP * 1000}
    assert [guard.kind for guard in say(stubborn, voice(10), **policy)[1].guards] == ["retry", "loop"]


@pytest.mark.parametrize("name", ["guarded-clip", "guarded-segment"])
def test_words_in_silence_are_cut(say: Say, name: str) -> None:
    sound = np.concatenate([voice(4), nothing(2), voice(4)])
    script = {"0": f"<0>{ENOUGH}<4><4.5> Thank you. <5.5><6> {ENOUGH}<10>"}
    _, transcript = say(script, sound, name)
    assert transcript.text.split() == (ENOUGH + ENOUGH).split()
    assert [(one.start_ms, one.end_ms) for one in transcript.segments] == [(0, 4000), (6000, 10_000)]
    assert guards(transcript) == [("no_speech", 4.5, 5.5)]
    assert "Thank you" in say(script, voice(10), name)[1].text


def test_words_in_silence_that_were_sent_are_reported(say: Say) -> None:
    sound = np.concatenate([voice(4), nothing(2), voice(4)])
    script = {"0": f"<0>{ENOUGH}<4><4.5> Thank you. <5.5><6> {ENOUGH}<10>"}
    _, transcript = say(script, sound, "guarded-token")
    assert "Thank you" in transcript.text
    assert guards(transcript) == [("no_speech", 4.5, 5.5)]


def test_times_beyond_the_clip_are_moved_and_reported_once(say: Say) -> None:
    _, transcript = say({"0": f"<0>{ENOUGH}<4.9><4.95>{ENOUGH}<7><8>{ENOUGH}<9>"}, voice(5))
    assert [(one.start_ms, one.end_ms) for one in transcript.segments] == [(0, 4900), (4950, 5000), (5000, 5000)]
    assert guards(transcript) == [("times", 0, 5)]
    _, rounded = say({"0": f"<0>{ENOUGH}<5.1>"}, voice(5))
    assert (rounded.segments[0].end_ms, rounded.guards) == (5000, ())


def test_the_budget_is_reported(say: Say) -> None:
    _, transcript = say({"0": "{budget}" + "".join(map(str, range(100)))}, voice(5))
    assert [guard.kind for guard in transcript.guards] == ["budget"]
