"""When text is sent, and what a review can still do then."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from asr_core.errors import EngineError, InvalidRequestError, PluginError
from asr_core.testing import tones
from asr_core.types import Guard, Segment, TranscriptionRequest

PAIRS, STOP = 256, 256 + 65536
RETRY, NOBODY, RESUME, END = STOP + 1, STOP + 2, STOP + 3, STOP + 105
"""As tests/stream/plugins/scripted.py has them."""


def said(text: str, end: int | None = None) -> list[int]:
    return [*text.encode(), *([] if end is None else [END + end])]


def pairs(text: str) -> list[int]:
    raw = text.encode()
    whole = len(raw) // 2 * 2
    return [PAIRS + 256 * raw[at] + raw[at + 1] for at in range(0, whole, 2)] + list(raw[whole:])


def test_by_token_what_may_be_the_end_waits(play: Any) -> None:
    deltas, _ = play("scripted-token", [[said(" a  b ")]])
    assert deltas == ["a", "  b"]


def test_by_token_characters_come_whole(play: Any) -> None:
    deltas, _ = play("scripted-token", [[pairs("你好🙂")]])
    assert deltas == ["你好", "🙂"]


def test_a_torn_character_shows_where_the_model_ended_inside_it(play: Any) -> None:
    deltas, _ = play("scripted-token", [[list("ok 🙂".encode()[:-1])]])
    assert deltas == ["o", "k", " \ufffd"]


def test_by_token_after_a_torn_character_too(play: Any) -> None:
    deltas, _ = play("scripted-token", [[list("é".encode()[:1]) + said("z")]])
    assert deltas == ["\ufffdz"]


def test_by_segment(play: Any) -> None:
    deltas, transcript = play("scripted-segment", [[said(" one", 10) + said(" two", 20) + said(" three")]])
    assert deltas == ["one", " two", " three"]
    assert [(one.start_ms, one.end_ms) for one in transcript.segments] == [(0, 100), (100, 200), (200, 1000)]


def test_segments_are_told_behind_their_text(opened: Any, streamed: Any) -> None:
    script = said("one", 10) + said(" two", 20) + said(" three")
    request = TranscriptionRequest(options={"script": json.dumps([[script]])})
    events = streamed(opened("scripted-segment").served, np.full(16_000, 0.5, np.float32), request, segments=True)
    assert [event.text for event in events] == ["one", "one", " two", "two", " three", "three", "one two three"]
    assert [(event.start_ms, event.end_ms) for event in events if isinstance(event, Segment)] == [
        (0, 100),
        (100, 200),
        (200, 1000),
    ]


def test_by_clip(play: Any) -> None:
    deltas, _ = play("scripted-clip", [[said(" one", 10) + said(" two", 20)]])
    assert deltas == ["one two"]


def test_a_model_that_gives_its_text_at_the_end(play: Any) -> None:
    deltas, _ = play("scripted-flush", [[said(" one ", 10) + said("two ", 20)]])
    assert deltas == ["one two"]


def test_silence_sends_nothing(play: Any) -> None:
    assert play("scripted-token", [[said(" \n ")]])[0] == []


def test_a_review_by_token_commits_in_runs(play: Any) -> None:
    deltas, _ = play("reviewed-token", [[said("one two three")]])
    assert deltas == ["one", " two", " thre", "e"]


def test_a_run_waits_for_the_end_of_a_character(play: Any) -> None:
    deltas, _ = play("reviewed-token", [[said("oneé two")]])
    assert deltas == ["oneé tw", "o"]


def test_a_retry_begins_after_the_runs_that_were_committed(play: Any) -> None:
    deltas, transcript = play("reviewed-token", [[[*said("one wr"), RETRY, *said("ong")], said("two")]])
    assert deltas == ["one", " two"]
    assert transcript.text == "one two"


def test_a_retry_is_never_seen(play: Any) -> None:
    script = [[[*said("wrong"), RETRY], said("right")]]
    for name in ("reviewed-segment", "reviewed-clip"):
        deltas, transcript = play(name, script)
        assert deltas == ["right"]
        assert transcript.guards == (Guard("retry", 0, 1000, "1"),)


def test_a_retry_begins_after_what_was_committed(play: Any) -> None:
    script = [[[*said(" one", 10), RETRY, *said(" wrong", 20)], said(" two", 20) + said(" three")]]
    deltas, transcript = play("reviewed-segment", script)
    assert deltas == ["one", " two", " three"]
    assert [(one.start_ms, one.end_ms, one.text) for one in transcript.segments] == [
        (0, 100, "one"),
        (100, 200, "two"),
        (200, 1000, "three"),
    ]
    assert all(len(one.tokens) == len(one.logprobs) for one in transcript.segments)


def test_retries_are_counted_from_the_last_commit(play: Any) -> None:
    words = [said(f" {number}", number) for number in range(20)]
    attempts = [[*word, RETRY, *said(" wrong", 99)] for word in words]
    deltas, _ = play("reviewed-segment", [[*attempts, said(" end")]])
    assert deltas == ["0", *(f" {number}" for number in range(1, 20)), " end"]


def test_the_budget_counts_what_was_committed(play: Any) -> None:
    script = [[[*said("one", 10), RETRY, *said("x", 20)], said(" two")]]
    _, transcript = play("reviewed-segment", script)
    assert transcript.text == "one two"
    assert "budget" not in {guard.kind for guard in transcript.guards}


@pytest.mark.parametrize("name", ["reviewed-segment", "reviewed-clip"])
def test_nobody_spoke(play: Any, name: str) -> None:
    deltas, transcript = play(name, [[[*said("hm"), NOBODY, *said("", 10), *said(" hm", 20)]]])
    assert deltas == []
    assert [part.state for part in transcript.coverage] == ["silent"]


def test_nobody_spoke_any_more_after_a_commit(play: Any) -> None:
    deltas, transcript = play("reviewed-segment", [[[*said("one", 10), NOBODY, *said(" hm", 20), *said(" hm")]]])
    assert deltas == ["one"]
    assert [part.state for part in transcript.coverage] == ["decoded"]
    assert [(guard.kind, guard.start_ms, guard.end_ms) for guard in transcript.guards] == [("no_speech", 0, 1000)]


@pytest.mark.parametrize(
    ("first", "second", "deltas"),
    [
        ("one ", " two", ["one", " two"]),
        ("你好", "世界", ["你好", "世界"]),
        ("我用", "Python", ["我用", "Python"]),
        ("안녕", "하세요", ["안녕", " 하세요"]),
        (" ", " two", ["two"]),
    ],
)
def test_the_seam_is_decided_by_what_comes_next(play: Any, first: str, second: str, deltas: list[str]) -> None:
    assert play("reviewed-segment", [[said(first)], [said(second)]])[0] == deltas


def test_an_error_comes_after_what_was_sent(fake: Any, streamed: Any) -> None:
    events: list[Any] = []
    with pytest.raises(EngineError, match="generation failed"):
        streamed(fake.served, tones.speak("abcdef"), TranscriptionRequest(options={"behaviour": "raise"}), events)
    assert [event.text for event in events] == ["a", "b", "c"]


def test_a_refusal_comes_before_anything(fake: Any, streamed: Any) -> None:
    events: list[Any] = []
    with pytest.raises(InvalidRequestError, match="takes no prompt"):
        streamed(fake.served, tones.speak("abcdef"), TranscriptionRequest(prompt="hint"), events)
    assert events == []


def test_the_last_item_is_what_transcribe_returns(fake: Any, streamed: Any) -> None:
    sound = tones.speak("Grüße 你好 🙂")
    *_, last = streamed(fake.served, sound, TranscriptionRequest())
    assert last == fake.transcribe(sound)
    assert (last.usage.audio_tokens, last.usage.text_tokens) == (len(sound) // tones.FRAME, 1)
    assert last.usage.output_tokens == len("Grüße 你好 🙂".encode()) + 1


def test_a_model_resumes_at_the_end_only(play: Any) -> None:
    script = [[[*said("one"), RESUME, *said("", 10), *said(" two")]], [said("three")]]
    assert play("reviewed-clip", script)[0] == ["one two", " three"]
    with pytest.raises(PluginError, match="consumed_to is 16000 while the model still listens"):
        play("reviewed-segment", script)


def test_a_clip_is_resumed_64_times_and_no_more(play: Any) -> None:
    more, last = [[*said("a"), RESUME]], [said("b")]
    assert play("reviewed-clip", [more] * 64 + [last])[1].text == " ".join("a" * 64 + "b")
    with pytest.raises(PluginError, match="a clip was heard again 64 times"):
        play("reviewed-clip", [more] * 65 + [last])
