"""One skeleton, unlike policies: what is batched, found, joined and handed out."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asr_core.api import load
from asr_core.errors import OverloadedError
from asr_core.plugins import Plugins
from asr_core.runtime._batches import BatchQueue, Flight
from asr_core.runtime._encoder_cache import digest
from asr_core.runtime.encoder import EncoderStatistics
from asr_core.testing import tones
from asr_core.types import CheckpointModel, EncoderPolicy, Feature

Open = Callable[..., Any]


async def sequence(bench: Any, make: SimpleNamespace, key: str) -> list[Any]:
    """Two requests that overlap, then one for all of it, then an equal sound of another upload."""
    clip = make.sound(1, 2, 3, 4, 5, 6, 7)

    def spans(*numbers: int) -> Any:
        return make.frames(*numbers, cost=2.0, key=key)

    results = await bench.together(
        bench.levels(clip, spans(0, 1, 2, 3, 4)),
        bench.levels(clip, spans(3, 4, 5, 6)),
    )
    results.append(await bench.levels(clip, spans(6, 5, 4, 3, 2, 1, 0)))
    results.append(await bench.levels(make.sound(1, 2, 3, 4, 5, 6, 7, 7), spans(2, 6, 7)))
    return results


OUTPUTS = [[1, 2, 3, 4, 5], [4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1], [3, 7, 7]]


@pytest.mark.parametrize(
    ("policy", "key", "changes", "batches", "statistics"),
    [
        (
            "bounded",
            "",
            {},
            [[1, 2, 3, 4, 5], [6, 7]],
            EncoderStatistics(hits=10, merged=2, misses=7, batches=2, items=7, entries=7, bytes=56),
        ),
        (
            "immediate",
            "another",
            {},
            [[1, 2], [3, 4], [5, 6], [7]],
            EncoderStatistics(hits=10, merged=2, misses=7, batches=4, items=7, entries=7, bytes=56),
        ),
        (
            "immediate",
            "another",
            {"cache_entries": 0},
            [[1, 2], [3, 4], [5, 6], [7], [7, 6], [5, 4], [3, 2], [1], [3, 7]],
            # Without a cache the sevenths of the last sound still share one flight.
            EncoderStatistics(merged=3, misses=16, batches=9, items=16),
        ),
    ],
    ids=["bounded", "immediate", "immediate without cache"],
)
def test_unlike_policies_are_values_only(
    bench: Open,
    make: SimpleNamespace,
    policy: str,
    key: str,
    changes: dict[str, Any],
    batches: list[list[int]],
    statistics: EncoderStatistics,
) -> None:
    there = bench(policy, **changes)
    assert asyncio.run(sequence(there, make, key)) == OUTPUTS
    assert there.batches == batches
    assert there.service.statistics() == statistics
    assert there.service.health() is None
    assert there.encoder.threads == {"asr-compute_0"}


def test_the_policies_are_what_the_plugin_says(plugins: Plugins) -> None:
    for name, expected in (("bounded", (8, 10.0, 0.004, False)), ("immediate", (2, None, 0.0, True))):
        checkpoint, card, hooks = plugins.resolve(name)
        policy = hooks.encoder_policy(CheckpointModel(card, checkpoint))
        assert (policy.max_items, policy.max_cost, policy.max_wait_s, policy.retry_items) == expected


@pytest.mark.parametrize(
    "wrong", [{"max_items": 0}, {"max_wait_s": -1.0}, {"timeout_s": 0.0}, {"queue_bound": 0}, {"cache_bytes": -1}]
)
def test_a_policy_that_could_never_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EncoderPolicy(**wrong)


# Batches


FEATURE = Feature(np.zeros(1, np.float32), 1)


def queue(*costs: float, **policy: Any) -> BatchQueue:
    waiting = BatchQueue(EncoderPolicy(**policy))
    for number, cost in enumerate(costs):
        waiting.push(Flight((b"", number), FEATURE, cost, arrived=10.0 + number))
    return waiting


def takes(waiting: BatchQueue) -> list[list[int]]:
    return [[flight.address[1] for flight in batch] for batch in iter(waiting.take, [])]


def test_batches_are_bounded_in_items_and_in_cost() -> None:
    assert takes(queue(1, 1, 1, 1, 1, max_items=2)) == [[0, 1], [2, 3], [4]]
    assert takes(queue(1, 2, 3, 4, 1, max_cost=5.0)) == [[0, 1], [2], [3, 4]]
    assert takes(queue(9, 1, 9, max_cost=5.0)) == [[0], [1], [2]]
    assert takes(queue()) == []


def test_a_batch_leaves_when_it_is_full_or_has_waited() -> None:
    assert queue(1, 1, max_items=3, max_wait_s=4.0).due_in(11.0) == 3.0
    assert queue(1, 1, max_items=3, max_wait_s=4.0).due_in(20.0) == 0.0
    assert queue(1, 1, max_items=2, max_wait_s=4.0).due_in(11.0) == 0.0
    assert queue(1, 3, max_items=3, max_cost=3.0, max_wait_s=4.0).due_in(11.0) == 0.0
    assert queue(1, 1).due_in(10.0) == 0.0
    assert queue(max_wait_s=4.0).due_in(0.0) == math.inf


def test_a_lone_span_leaves_after_the_wait(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded")
    assert asyncio.run(there.levels(make.sound(1, 2), make.frames(1))) == [2]


def test_what_arrives_during_the_wait_shares_the_batch(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded", max_items=2, max_wait_s=60.0)

    async def run() -> list[list[int]]:
        requests = [there.levels(make.sound(level), make.frames(0)) for level in (1, 2)]
        return await asyncio.gather(*requests)

    # Were the batch not full with the second, this would take a minute.
    assert asyncio.run(run()) == [[1], [2]]
    assert sorted(there.batches[0]) == [1, 2]


# The two levels of the cache


def test_a_digest_tells_apart_what_an_encoder_would() -> None:
    data = np.arange(6, dtype=np.float32)
    features = [
        Feature(data, 6),
        Feature(data, 5),
        Feature(data.reshape(2, 3), 6),
        Feature(data.reshape(3, 2), 6),
        Feature(data.view(np.int32), 6),
        Feature(data + 1, 6),
        Feature(data[:0], 0),
        Feature(data[:0].reshape(0, 3), 0),
    ]
    assert len({digest(feature) for feature in features}) == len(features)
    assert digest(Feature(np.repeat(data, 2)[::2], 6)) == digest(features[0])


def test_features_are_computed_only_on_a_miss(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded")

    async def run() -> None:
        clip = make.sound(1, 2, 3)
        await there.levels(clip, make.frames(0, 1))
        await there.levels(clip, make.frames(0, 1, 2))
        await there.levels(clip, make.frames(2))

    asyncio.run(run())
    assert there.extracted == [0, 1, 2]
    assert there.batches == [[1, 2], [3]]


def test_a_growing_clip_finds_what_is_equal_and_nothing_else(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded")

    async def run() -> None:
        assert await there.levels(make.sound(1, 2), make.frames(0, 1)) == [1, 2]
        assert await there.levels(make.sound(1, 2, 3), make.frames(0, 1, 2)) == [1, 2, 3]
        # From here on 12 is the floor.
        assert await there.levels(make.sound(1, 2, 3, 20), make.frames(0, 1, 2, 3)) == [12, 12, 12, 20]

    asyncio.run(run())
    assert there.batches == [[1, 2], [3], [12, 20]]
    assert there.counts("hits", "merged", "misses") == (2, 2, 5)


def test_a_key_sets_spans_apart_but_equal_features_meet_again(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded"), make.sound(1)

    async def run() -> tuple[Any, Any]:
        first = await there.service.encode(clip, make.frames(0, key="a"))
        return first[0], (await there.service.encode(clip, make.frames(0, key="b")))[0]

    first, second = asyncio.run(run())
    assert there.extracted == [0, 0]
    assert there.batches == [[1]]
    assert first.key == second.key
    assert torch.equal(first.rows, second.rows)


def test_equal_features_of_which_more_rows_are_made_have_another_key(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded"), make.sound(1)

    async def key(tokens: int) -> bytes:
        there.encoder.answer = lambda rows: [one.repeat(tokens, 1) for one in rows]
        return (await there.service.encode(clip, make.frames(0, tokens=tokens)))[0].key

    assert asyncio.run(key(1)) != asyncio.run(key(2))


def test_a_stretch_of_the_waveform_is_not_the_whole(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded"), make.sound(1, 20)

    async def run() -> list[list[int]]:
        part = clip.waveform.clip(0, 100)
        return [await there.levels(clip, make.frames(0)), await there.levels(part, make.frames(0))]

    assert asyncio.run(run()) == [[12], [1]]


def test_the_least_recently_used_goes_first(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded", cache_entries=2), make.sound(1, 2, 3)

    async def run() -> None:
        for frame in (0, 1, 0, 2, 0, 1):
            await there.levels(clip, make.frames(frame))

    asyncio.run(run())
    assert there.batches == [[1], [2], [3], [2]]
    assert there.counts("hits", "evicted", "entries", "bytes") == (2, 2, 2, 16)


def test_bytes_bound_the_cache_too(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded", cache_bytes=20), make.sound(1, 2, 3)

    async def run() -> None:
        await there.levels(clip, make.frames(0))
        await there.levels(clip, make.frames(1))
        await there.levels(clip, make.frames(2))
        assert there.counts("evicted", "entries", "bytes") == (1, 2, 16)
        # Three rows of 8 bytes fit in no cache of 20, and drive nothing out of it.
        (span,) = make.frames(0, tokens=3)
        await there.levels(clip, [type(span)(0, 300, 3)])
        assert there.counts("evicted", "entries", "bytes") == (1, 2, 16)

    asyncio.run(run())


def test_rows_hold_no_more_memory_than_is_counted(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded")
    encoded = asyncio.run(there.service.encode(make.sound(1, 2, 3), make.frames(0, 1, 2)))
    assert [len(item.rows.untyped_storage()) for item in encoded] == [8, 8, 8]
    assert not any(item.rows.requires_grad for item in encoded)


# Company


def test_equal_requests_share_one_flight(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded", cache_entries=0), make.sound(1, 2)
    requests = (there.levels(clip, make.frames(0, 1)) for _ in range(5))
    assert asyncio.run(there.together(*requests)) == [[1, 2]] * 5
    assert there.batches == [[1, 2]]
    assert there.counts("misses", "merged") == (2, 8)


def test_a_span_may_come_twice_or_not_at_all(bench: Open, make: SimpleNamespace) -> None:
    there = bench("immediate")
    assert asyncio.run(there.levels(make.sound(1, 2), make.frames(1, 0, 1))) == [2, 1, 2]
    assert asyncio.run(there.levels(make.sound(1, 2), ())) == []
    assert there.batches == [[2, 1]]


def test_several_event_loops_share_a_service(bench: Open, make: SimpleNamespace) -> None:
    there, clip, results = bench("bounded"), make.sound(1, 2), []

    def loop() -> None:
        results.append(asyncio.run(there.levels(clip, make.frames(0, 1))))

    async def run() -> None:
        async with there.held():
            threads = [threading.Thread(target=loop) for _ in range(4)]
            for thread in threads:
                thread.start()
            await make.until(lambda: sum(there.counts("misses", "merged")) == 8)
        for thread in threads:
            await asyncio.to_thread(thread.join)

    asyncio.run(run())
    assert results == [[1, 2]] * 4
    assert there.batches == [[1, 2]]


def test_models_that_recognise_go_the_same_way(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("immediate", generates=False), make.sound(1, 2, 3)

    async def run() -> list[Any]:
        first = await there.service.recognize(clip, make.frames(0, 1, 2, tokens=0))
        return first + await there.service.recognize(clip, make.frames(2, tokens=0))

    assert [result.tokens for result in asyncio.run(run())] == [(1,), (2,), (3,), (3,)]
    assert there.batches == [[1, 2], [3]]
    assert there.counts("hits", "bytes") == (1, 3 * 64)


def test_a_served_model_encodes_with_its_service(fake_model: Path, make: SimpleNamespace) -> None:
    with load("fake") as transcriber:
        encoder = transcriber.served.encoder
        assert transcriber.transcribe(tones.speak("ab")).text == "ab"
        assert (encoder.statistics().misses, encoder.statistics().items, encoder.health()) == (1, 1, None)
    with pytest.raises(OverloadedError, match="the encoder is closed"):
        asyncio.run(encoder.encode(make.sound(1), ()))


REQUESTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), min_size=1, max_size=6),
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.sampled_from(["", "k"])), max_size=6),
    ),
    min_size=1,
    max_size=8,
)
POLICY = st.fixed_dictionaries(
    {
        "max_items": st.integers(1, 5),
        "max_cost": st.none() | st.floats(0.5, 6.0),
        "max_wait_s": st.sampled_from([0.0, 0.001]),
        "cache_entries": st.integers(0, 4),
        "cache_bytes": st.integers(0, 64),
        "retry_items": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=REQUESTS, policy=POLICY)
def test_everybody_gets_their_own_rows(
    bench: Open, make: SimpleNamespace, requests: list[Any], policy: dict[str, Any]
) -> None:
    there = bench("bounded", **policy)

    async def one(levels: list[int], wanted: list[tuple[int, int, str]]) -> None:
        ends = [(min(start, len(levels) - 1), count, key) for start, count, key in wanted]
        spans = []
        for start, count, key in ends:
            (span,) = make.frames(start, key=key, cost=float(count))
            end = min(start + count, len(levels))
            spans.append(type(span)(span.start_sample, 100 * end, end - start, key, float(count)))
        encoded = await there.service.encode(make.sound(*levels), spans)
        heard = [max(level, max(levels) - 8) for level in levels]
        assert [item.rows[:, 0].tolist() for item in encoded] == [
            heard[start : min(start + count, len(levels))] for start, count, _ in ends
        ]

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*(one(*request) for request in requests)), 30)

    asyncio.run(run())
    sizes = [len(batch) for batch in there.encoder.batches]
    assert max(sizes, default=0) <= policy["max_items"]
    statistics = there.service.statistics()
    assert statistics.misses == statistics.items == sum(sizes)
    assert statistics.entries <= policy["cache_entries"]
    assert statistics.bytes <= policy["cache_bytes"]
    there.service.close()
    there.compute.close()
