"""Long audio: many clips at once, one transcript and one stream in order."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from asr_core import audio, pipeline
from asr_core.api import load
from asr_core.errors import EngineError, PluginError
from asr_core.loading import ServedModel
from asr_core.runtime.stream import TextDelta
from asr_core.types import ChunkPolicy, Segment, Transcript, TranscriptionRequest, Waveform

EACH_SECOND = ChunkPolicy(target_s=1.0, search_s=0.0, min_tail_s=0.0)
"""Cuts exactly at full seconds: there is nothing to choose from."""

COUNTED = " ".join(f"then {number}" for number in range(20))
"""Much to say, and nothing twice."""

RATE, START, END = 16_000, 256 + 65536 + 5, 256 + 65536 + 105
"""As tests/stream/plugins/scripted.py has them."""

Speak = Callable[..., tuple[list[TextDelta | Segment], Transcript]]


def words(text: str, *, start: int | None = None, end: int | None = None) -> list[int]:
    marks = [START + start] if start is not None else []
    return [*marks, *text.encode(), *([END + end] if end is not None else [])]


def tone(seconds: int) -> np.ndarray:
    return np.full(seconds * RATE, 0.5, np.float32)


def asked(script: Sequence[Any], **fields: Any) -> TranscriptionRequest:
    return TranscriptionRequest(options={"script": json.dumps(script)}, **fields)


@pytest.fixture(scope="module")
def speak(opened: Any, streamed: Any) -> Speak:
    """Events and transcript of a model that says one script for every second."""

    def speak(
        name: str, script: Sequence[Any], sound: np.ndarray | None = None, policy: ChunkPolicy = EACH_SECOND
    ) -> tuple[list[TextDelta | Segment], Transcript]:
        served = evolve(opened(name).served, chunk_policy=policy)
        sound = tone(len(script)) if sound is None else sound
        *events, transcript = streamed(served, sound, asked(script), segments=True)
        return events, transcript

    return speak


def test_clips_become_one_text_joined_by_the_characters_at_the_seams(speak: Speak) -> None:
    texts = ["one", "two", "三", "四", "five", "여섯", "일곱"]
    events, transcript = speak("scripted-token", [[words(text)] for text in texts])
    assert transcript.text == "one two三四five 여섯 일곱"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == transcript.text
    assert [(part.start_sample, part.end_sample) for part in transcript.coverage] == [
        (second * RATE, (second + 1) * RATE) for second in range(7)
    ]


def test_times_count_from_where_each_clip_starts(speak: Speak) -> None:
    script = [[words("said", start=10, end=40)]] * 5
    events, transcript = speak("scripted-segment", script)
    assert [(one.start_ms, one.end_ms) for one in transcript.segments] == [
        (1000 * second + 100, 1000 * second + 400) for second in range(5)
    ]
    assert [event.start_ms for event in events if isinstance(event, Segment)] == [100, 1100, 2100, 3100, 4100]


def test_however_many_are_heard_at_once_the_answer_is_the_same(speak: Speak) -> None:
    script = [[words(f"word {second}", start=0, end=50)] for second in range(12)]
    answers = {
        (parallel, name): speak(name, script, policy=evolve(EACH_SECOND, parallel=parallel))[1]
        for parallel in (1, 3, 16)
        for name in ("scripted-token", "scripted-segment", "scripted-clip", "reviewed-clip")
    }
    assert {answer.text for answer in answers.values()} == {" ".join(f"word {second}" for second in range(12))}
    assert len({answer.segments for answer in answers.values()}) == 1


def test_deltas_keep_the_order_while_later_clips_are_done_first(speak: Speak) -> None:
    # The first clip has far more to say than the others, which end long before it does.
    script = [[words(COUNTED)], *([words(f"then {second}")] for second in range(5))]
    events, transcript = speak("scripted-token", script)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == transcript.text
    assert transcript.text == " ".join([COUNTED, *(f"then {second}" for second in range(5))])


def test_silence_between_is_skipped_and_accounted(speak: Speak) -> None:
    sound = tone(30)
    sound[8 * RATE : 28 * RATE] = 0.0
    policy = ChunkPolicy(target_s=10.0, pad_s=0.0)
    script = [[words("before")], *[[words("never")]] * 27, [words("after")], [words("never")]]
    _, transcript = speak("scripted-token", script, sound, policy)
    assert transcript.text == "before after"
    assert [(part.start_sample // RATE, part.end_sample // RATE, part.state) for part in transcript.coverage] == [
        (0, 8, "decoded"),
        (8, 28, "silent"),
        (28, 30, "decoded"),
    ]


def test_a_clip_that_fails_fails_the_request_and_is_named(opened: Any, streamed: Any) -> None:
    served: ServedModel = evolve(opened("scripted-token").served, chunk_policy=evolve(EACH_SECOND, parallel=3))
    script = [*([words("fine")] for _ in range(4)), [], *([words("fine")] for _ in range(4))]
    events: list[Any] = []
    with pytest.raises(PluginError, match=r"clip 5 of 9, 4\.00 s to 5\.00 s: .*prepare_clip") as raised:
        streamed(served, tone(9), asked(script), events)
    assert raised.value.status == 500
    # What came before it was told, what came behind it never is.
    assert "fine fine fine fine".startswith("".join(event.text for event in events))
    assert_idle(served)
    assert served.compute.newcomers.since(besides=()) is None


def test_a_request_that_is_under_way_waits_for_room_in_full_queues(speak: Speak) -> None:
    # More clips at once than spans may wait for the encoder, or requests for the engine.
    script = [[words(f"{second}")] for second in range(330)]
    _, transcript = speak("scripted-clip", script, policy=evolve(EACH_SECOND, parallel=320))
    assert transcript.text == " ".join(map(str, range(330)))


def test_a_model_that_is_closed_in_the_middle_fails_the_request(opened: Any) -> None:
    opened("scripted-token")  # installs it
    with load("scripted-token") as model:
        served = evolve(model.served, chunk_policy=EACH_SECOND)
        done = threading.Event()

        def close(seconds: float, of: float) -> None:
            done.set()

        def closing() -> None:
            done.wait()
            served.compute.close()

        closer = threading.Thread(target=closing)
        closer.start()
        with pytest.raises(EngineError, match="clos"):
            asyncio.run(pipeline.transcribe(served, reader(tone(60)), asked([[words("word " * 3)]] * 60), close))
        closer.join()


def test_a_clip_of_uneven_length_ends_where_the_next_one_starts(speak: Speak) -> None:
    policy = evolve(EACH_SECOND, target_s=1.0005625)
    _, transcript = speak("scripted-segment", [[words("word", start=50)]] * 6, policy=policy)
    bounds = [(one.start_ms, one.end_ms) for one in transcript.segments]
    assert all(end <= start + 500 for (_, end), (start, _) in pairwise(bounds))
    clips = [part.end_sample * 1000 / RATE for part in transcript.coverage]
    assert [end for _, end in bounds] == [round(end) for end in clips]


def test_whoever_leaves_in_the_middle_frees_every_clip(opened: Any) -> None:
    served: ServedModel = evolve(opened("scripted-token").served, chunk_policy=EACH_SECOND)

    async def leave() -> None:
        events = pipeline.stream(served, reader(tone(40)), asked([[words(COUNTED)]] * 40))
        await anext(events)
        await events.aclose()

    asyncio.run(leave())
    assert_idle(served)


class Other:
    """A request that is about its first clip."""

    waveform = None


@pytest.mark.parametrize("crowded", [False, True])
def test_a_long_one_makes_room_while_others_begin(opened: Any, crowded: bool) -> None:
    served: ServedModel = evolve(opened("scripted-token").served, chunk_policy=evolve(EACH_SECOND, parallel=4))
    most, other = 0, Other()
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.is_set():
            statistics = served.engine.statistics()
            most = max(most, statistics.running + statistics.queued)
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    if crowded:
        served.compute.newcomers.add(other)
    try:
        transcript = asyncio.run(pipeline.transcribe(served, reader(tone(24)), asked([[words(COUNTED)]] * 24)))
    finally:
        served.compute.newcomers.discard(other)
        ended.set()
        watcher.join()
    assert transcript.text == " ".join([COUNTED] * 24)
    assert (most > 1) is not crowded


@pytest.mark.parametrize(("clips", "most"), [(3, 3), (6, 6), (7, 4), (12, 4)])
def test_nobody_is_left_for_the_end_where_a_few_more_are_all(
    opened: Any, monkeypatch: pytest.MonkeyPatch, clips: int, most: int
) -> None:
    served: ServedModel = evolve(opened("scripted-token").served, chunk_policy=evolve(EACH_SECOND, parallel=4))
    generate: Any = served.engine.generate
    running: list[str] = []
    seen: list[int] = []

    async def watched(request: Any) -> AsyncIterator[Any]:
        running.append(request.id)
        seen.append(len(running))
        try:
            async for item in generate(request):
                yield item
        finally:
            running.remove(request.id)

    monkeypatch.setattr(served.engine, "generate", watched)
    transcript = asyncio.run(pipeline.transcribe(served, reader(tone(clips)), asked([[words(COUNTED)]] * clips)))
    assert transcript.text == " ".join([COUNTED] * clips)
    assert max(seen) == most


def test_progress_reaches_the_end(opened: Any) -> None:
    served = evolve(opened("scripted-token").served, chunk_policy=EACH_SECOND)
    told: list[tuple[float, float]] = []
    asyncio.run(
        pipeline.transcribe(
            served, reader(tone(5)), asked([[words("word")]] * 5), lambda done, of: told.append((done, of))
        )
    )
    assert told == [(1.0, 5.0), (2.0, 5.0), (3.0, 5.0), (4.0, 5.0), (5.0, 5.0)]


def reader(sound: np.ndarray) -> Any:
    async def read(rate: int) -> Waveform:
        return audio.from_array(sound, rate, rate)

    return read


def assert_idle(served: ServedModel) -> None:
    """Nothing is left in the engine and the encoder, now or within a moment."""
    assert served.engine is not None
    for _ in range(500):
        engine, encoder = served.engine.statistics(), served.encoder.statistics()
        if engine.running == engine.queued == encoder.queued == 0:
            return
        time.sleep(0.01)
    pytest.fail(f"{engine} {encoder}")
