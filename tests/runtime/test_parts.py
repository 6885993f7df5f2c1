"""An encoding in parts: newcomers go between them, and whatever befalls a call befalls its parts."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import frozen

from asr_core.errors import AsrError, DeadlineError, OverloadedError, PluginError
from asr_core.runtime import _encoder_worker
from asr_core.types import Waveform

Open = Callable[..., Any]

LONG, SHORT, OTHER = 1, 5, 7
"""Levels of the sounds that are encoded, and by which their batches are told apart."""

PARTS = 3
FOR_EVER = 1e6


@frozen(eq=False)
class Request:
    """One that is about its first clip."""

    waveform: Waveform


class Played:
    """Notes the first level of every part that is computed; that of LONG waits in its first part to be let go."""

    def __init__(self, there: Any) -> None:
        self.order: list[int] = []
        self._here: list[Request] = []
        self._there = there
        self._reached, self._opened = threading.Event(), threading.Event()
        there.encoder.parts = PARTS
        there.encoder.part = self._part

    def _part(self, batch: Any) -> None:
        level = int(batch[0][0])
        if level == LONG and LONG not in self.order:
            self._reached.set()
            self._opened.wait(90)  # longer than any test waits for anything
        self.order.append(level)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def go(self) -> None:
        self._opened.set()

    def newcomer(self, make: SimpleNamespace, level: int) -> tuple[Request, Awaitable[list[int]]]:
        """A request that came, and what becomes of its only span."""
        clip = make.sound(level)
        request = self.comes(clip.waveform)
        return request, asyncio.create_task(self._there.levels(clip, make.frames(0)))

    def comes(self, waveform: Waveform) -> Request:
        """A request that sends nothing yet."""
        self._here.append(request := Request(waveform))
        self._there.compute.newcomers.add(request)
        return request

    def all_leave(self) -> None:
        for request in self._here:
            self._there.compute.newcomers.discard(request)

    async def queued(self, make: SimpleNamespace, count: int) -> None:
        await make.until(lambda: self._there.counts("queued") == (count,))


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    return lambda factor: monkeypatch.setattr(_encoder_worker, "REST", factor)


def test_rows_are_those_of_a_call(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded", max_wait_s=0.0)
    there.encoder.parts = PARTS
    assert asyncio.run(there.levels(make.sound(1, 2, 3), make.frames(2, 0))) == [3, 1]
    assert there.batches == there_ended(there) == [[3, 1]]
    assert there.counts("batches", "items", "failed") == (1, 2, 0)


def test_newcomers_go_between_two_parts(bench: Open, make: SimpleNamespace, rest: Any) -> None:
    there = bench("bounded", max_wait_s=0.0)
    played = Played(there)
    rest(0.0)

    async def run() -> None:
        long = asyncio.create_task(there.levels(make.sound(LONG), make.frames(0)))
        await played.reached()
        _, short = played.newcomer(make, SHORT)
        await played.queued(make, 1)
        played.go()
        assert (await short, await long) == ([SHORT], [LONG])

    asyncio.run(run())
    assert played.order == [LONG, SHORT, SHORT, SHORT, LONG, LONG]


def test_others_rest_as_long_as_newcomers_are_at_work(bench: Open, make: SimpleNamespace, rest: Any) -> None:
    there = bench("bounded", max_wait_s=0.0)
    played = Played(there)
    rest(FOR_EVER)

    async def run() -> None:
        long = asyncio.create_task(there.levels(make.sound(LONG), make.frames(0)))
        await played.reached()
        first, short = played.newcomer(make, SHORT)
        await played.queued(make, 1)
        played.go()
        await short
        # One is gone, another came before: the rest goes on, and is no rest for the other.
        second, other = played.newcomer(make, OTHER)
        there.compute.newcomers.discard(first)
        await other
        assert played.order == [LONG, *[SHORT] * PARTS, *[OTHER] * PARTS]
        assert not long.done()
        there.compute.newcomers.discard(second)
        assert await long == [LONG]

    asyncio.run(run())
    assert played.order[-2:] == [LONG, LONG]


def test_newcomers_without_end_leave_others_their_share(bench: Open, make: SimpleNamespace, rest: Any) -> None:
    there = bench("bounded", max_wait_s=0.0, max_items=1)
    played = Played(there)
    rest(0.0)

    async def run() -> None:
        long = asyncio.create_task(there.levels(make.sound(LONG), make.frames(0)))
        await played.reached()
        shorts = []
        for number, level in enumerate(range(10, 15)):
            shorts.append(played.newcomer(make, level)[1])
            await played.queued(make, number + 1)
        played.go()
        assert await asyncio.gather(*shorts) == [[level] for level in range(10, 15)]
        assert await long == [LONG]

    asyncio.run(run())
    turns = [level for level, _ in itertools.groupby(played.order)]
    assert turns == [LONG, 10, LONG, 11, LONG, 12, 13, 14]


def test_whoever_has_more_than_a_first_clip_does_not_rest_for_itself(
    bench: Open, make: SimpleNamespace, rest: Any
) -> None:
    there = bench("bounded", max_wait_s=0.0, max_items=1)
    there.encoder.parts = PARTS
    rest(FOR_EVER)
    clip = make.sound(1, 2, 3)
    there.compute.newcomers.add(Request(clip.waveform))
    requests = (there.levels(clip, make.frames(n)) for n in range(3))
    assert asyncio.run(there.together(*requests)) == [[1], [2], [3]]


def test_a_call_without_parts_goes_behind_newcomers_too(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded", max_wait_s=0.0)

    async def run() -> None:
        async with there.held():
            long = asyncio.create_task(there.levels(make.sound(LONG), make.frames(0)))
            await make.until(lambda: there.counts("queued") == (1,))
            clip = make.sound(SHORT)
            there.compute.newcomers.add(Request(clip.waveform))
            short = asyncio.create_task(there.levels(clip, make.frames(0)))
            await make.until(lambda: there.counts("queued") == (2,))
        assert (await short, await long) == ([SHORT], [LONG])

    asyncio.run(run())
    assert there.batches == [[SHORT], [LONG]]


# What may go wrong


def test_a_part_that_raises_fails_its_batch_only(bench: Open, make: SimpleNamespace, rest: Any) -> None:
    there = bench("bounded", max_wait_s=0.0)
    played = Played(there)
    rest(0.0)

    def answer(rows: Any) -> Any:
        if int(rows[0][0, 0]) == LONG:
            raise ValueError("no")
        return rows

    there.encoder.answer = answer

    async def run() -> None:
        long = asyncio.create_task(there.levels(make.sound(LONG), make.frames(0)))
        await played.reached()
        _, short = played.newcomer(make, SHORT)
        await played.queued(make, 1)
        played.go()
        assert await short == [SHORT]
        with pytest.raises(PluginError, match="asr-recorder: encode_batch raised ValueError: no"):
            await long
        assert await there.levels(make.sound(OTHER), make.frames(0)) == [OTHER]

    asyncio.run(run())
    assert there.counts("failed", "crashes") == (1, 0)


def test_closing_lets_what_is_suspended_finish(bench: Open, make: SimpleNamespace, rest: Any) -> None:
    there = bench("bounded", max_wait_s=0.0)
    played = Played(there)
    rest(FOR_EVER)
    asyncio.run(suspend(there, played, make, there.service.close, None))
    assert there_ended(there) == [[SHORT], [LONG]]
    assert played.order.count(LONG) == PARTS


def test_a_compute_thread_that_closes_first_ends_what_is_suspended(
    bench: Open, make: SimpleNamespace, rest: Any
) -> None:
    there = bench("bounded", max_wait_s=0.0)
    played = Played(there)
    rest(FOR_EVER)

    def close() -> None:
        there.compute.close()
        played.all_leave()

    asyncio.run(suspend(there, played, make, close, OverloadedError))
    assert there_ended(there) == [[SHORT], [LONG]]
    assert played.order.count(LONG) == 1


def test_a_newcomers_call_that_hangs_ends_what_is_suspended(bench: Open, make: SimpleNamespace, rest: Any) -> None:
    there = bench("bounded", max_wait_s=0.0, timeout_s=0.5)
    played = Played(there)
    rest(FOR_EVER)
    hanging = threading.Event()
    there.encoder.before = lambda batch: hanging.wait(90) if batch == [[OTHER]] else None

    def hang() -> None:
        clip = make.sound(OTHER)
        played.comes(clip.waveform)
        with pytest.raises(DeadlineError):
            asyncio.run(there.levels(clip, make.frames(0)))

    async def run() -> None:
        await suspend(there, played, make, hang, DeadlineError)
        assert there.service.health()
        assert there_ended(there) == [[SHORT], [LONG]]
        hanging.set()
        played.all_leave()
        await make.until(lambda: there.service.health() is None)
        assert await there.levels(make.sound(3), make.frames(0)) == [3]

    asyncio.run(run())
    assert played.order.count(OTHER) == 1  # nobody waited for its rows any more
    assert there.counts("expired", "failed") == (1, 2)


def test_parts_without_end_run_out_of_time(bench: Open, make: SimpleNamespace, rest: Any) -> None:
    there = bench("bounded", max_wait_s=0.0, timeout_s=0.2)
    rest(0.0)
    there.encoder.parts = 10**9
    there.compute.newcomers.add(Request(make.sound(SHORT).waveform))
    there.encoder.part = lambda batch: time.sleep(0.01)
    with pytest.raises(DeadlineError, match="has taken"):
        asyncio.run(there.levels(make.sound(LONG), make.frames(0)))
    assert there.counts("expired", "failed") == (1, 1)
    assert there_ended(there) == [[LONG]]


def test_the_time_of_all_parts_counts(bench: Open, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    there, ticks = bench("bounded", max_wait_s=0.0), itertools.count()
    there.encoder.parts = PARTS
    clock = SimpleNamespace(monotonic=time.monotonic, thread_time=lambda: float(next(ticks)))
    monkeypatch.setattr(_encoder_worker, "time", clock)
    asyncio.run(there.levels(make.sound(LONG), make.frames(0, cost=2.0)))
    assert there.service._flights._others.seconds == (PARTS + 1) / 2.0


async def suspend(
    there: Any, played: Played, make: SimpleNamespace, act: Callable[[], None], failure: type[AsrError] | None
) -> None:
    """``act`` while a batch is suspended, and expect its rows or this failure."""
    long = asyncio.create_task(there.levels(make.sound(LONG), make.frames(0)))
    await played.reached()
    _, short = played.newcomer(make, SHORT)
    await played.queued(make, 1)
    played.go()
    assert await short == [SHORT]
    assert not long.done()
    await asyncio.to_thread(act)
    if failure is None:
        assert await long == [LONG]
    else:
        with pytest.raises(failure):
            await long


def there_ended(there: Any) -> list[list[int]]:
    """The first levels of the batches whose generators are no more."""
    return [[int(levels[0]) for levels in batch] for batch in there.encoder.ended]
