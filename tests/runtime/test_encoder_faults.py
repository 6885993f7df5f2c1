"""What may go wrong around the encoder, and that the next request never notices."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asr_core.errors import AsrError, DeadlineError, EngineError, OverloadedError, PluginError

Open = Callable[..., Any]

TIMEOUT = 0.5
"""Seconds of a call that is to hang; all others must be done by then."""


class Death(BaseException):
    """No Exception, so nothing that guards against those stops it."""


def raising(error: BaseException, level: int | None = None) -> Callable[[Any], None]:
    """Raise for every batch, or for those with a feature of this level."""

    def before(batch: Any) -> None:
        if level is None or [level] in batch:
            raise error

    return before


class Gate:
    """An encoder call that lasts until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, batch: Any = None) -> None:
        self.entered.set()
        self.opened.wait(90)  # longer than any test waits for anything

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 30)


def spoken(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# Calls that raise


def test_a_batch_that_raises_fails_its_items_only(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded", max_items=2), make.sound(1, 2, 3, 4)
    there.encoder.before = raising(ValueError("no"), level=3)
    requests = (there.levels(clip, make.frames(n)) for n in range(4))
    first, second, third, fourth = asyncio.run(there.together(*requests))
    assert (first, second) == ([1], [2])
    assert spoken(third) == spoken(fourth) == "PluginError: asr-recorder: encode_batch raised ValueError: no"
    there.encoder.before = raising(ValueError("no"), level=99)
    assert asyncio.run(there.levels(clip, make.frames(2, 3))) == [3, 4]
    assert there.batches == [[1, 2], [3, 4], [3, 4]]
    assert there.counts("failed", "retried", "queued") == (2, 0, 0)


def test_an_item_that_raises_is_found_by_trying_each(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("immediate"), make.sound(1, 2, 3, 4)
    there.encoder.before = raising(ValueError("no"), level=2)
    requests = (there.levels(clip, make.frames(n)) for n in range(4))
    first, second, third, fourth = asyncio.run(there.together(*requests))
    assert (first, third, fourth) == ([1], [3], [4])
    assert isinstance(second, PluginError)
    assert there.batches == [[1, 2], [1], [2], [3, 4]]
    assert there.counts("failed", "retried", "items", "batches") == (1, 2, 6, 4)


def test_a_retry_is_joined_like_anything_on_its_way(bench: Open, make: SimpleNamespace) -> None:
    there, clip, gate = bench("immediate"), make.sound(1, 2), Gate()
    failures = iter([ValueError("only once")])

    def before(batch: Any) -> None:
        gate(batch)
        if error := next(failures, None):
            raise error

    there.encoder.before = before

    async def run() -> list[Any]:
        first = asyncio.create_task(there.levels(clip, make.frames(0, 1)))
        await gate.reached()
        second = asyncio.create_task(there.levels(clip, make.frames(1)))
        await make.until(lambda: there.counts("merged") == (1,))
        gate.opened.set()
        return [await first, await second]

    assert asyncio.run(run()) == [[1, 2], [2]]
    assert there.batches == [[1, 2], [1], [2]]
    assert there.counts("failed") == (0,)


def test_features_that_raise_fail_their_request_only(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded")
    bad = make.sound(1, 2).waveform.clip(0, 0)  # an empty clip has no maximum
    good = there.levels(make.sound(3), make.frames(0))

    async def run() -> Any:
        return await asyncio.gather(there.levels(bad, make.frames(0)), good, return_exceptions=True)

    error, levels = asyncio.run(run())
    assert isinstance(error, PluginError)
    assert "extract_features" in str(error)
    assert levels == [3]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rows: rows[:1], "must return 2 items"),
        (lambda rows: [rows[0], rows[1][:0]], r"returned 0 rows for a span of 1 tokens"),
        (lambda rows: [rows[0], rows[1][0]], r"\(2,\) for a span, not rows of shape"),
        (lambda rows: [rows[0], "rows"], r"str for a span, not rows of shape"),
        (lambda rows: [rows[0], rows[1].half()], r"width 2 in torch.float16, and 2 in torch.float32 before"),
        (lambda rows: [rows[0], rows[1][:, :1]], r"width 1 in torch.float32, and 2 in torch.float32 before"),
    ],
)
def test_rows_that_are_not_what_was_promised_are_never_kept(
    bench: Open, make: SimpleNamespace, answer: Any, message: str
) -> None:
    there, clip = bench("bounded"), make.sound(1, 2)
    there.encoder.answer = answer
    requests = (there.levels(clip, make.frames(n)) for n in range(2))
    first, second = asyncio.run(there.together(*requests))
    with pytest.raises(PluginError, match=f"asr-recorder: encode_batch .*{message}"):
        raise second
    # A wrong number of items is the batch's fault, a wrong item only its own.
    assert isinstance(first, PluginError) if "items" in message else first == [1]
    there.encoder.answer = lambda rows: rows
    assert asyncio.run(there.levels(clip, make.frames(1))) == [2]


def test_plans_that_disagree_about_the_rows_do_not_spoil_each_other(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("bounded"), make.sound(1)
    wrong, right = there.levels(clip, make.frames(0, tokens=5)), there.levels(clip, make.frames(0))
    error, levels = asyncio.run(there.together(wrong, right))
    with pytest.raises(PluginError, match="1 rows for a span of 5"):
        raise error
    assert levels == [1]


# Workers that die


@pytest.mark.parametrize(
    ("death", "kind"),
    [(SystemExit(3), PluginError), (Death("gone"), EngineError), (KeyboardInterrupt(), EngineError)],
    ids=["SystemExit", "BaseException", "KeyboardInterrupt"],
)
def test_a_call_that_would_end_its_thread_is_survived(
    bench: Open, make: SimpleNamespace, caplog: pytest.LogCaptureFixture, death: BaseException, kind: type[AsrError]
) -> None:
    there, clip = bench("bounded", max_items=1), make.sound(1, 2)
    there.encoder.before = raising(death, level=1)
    error, levels = asyncio.run(there.together(*(there.levels(clip, make.frames(n)) for n in range(2))))
    assert isinstance(error, kind)
    assert type(death).__name__ in str(error)
    assert levels == [2]
    assert there.counts("crashes", "failed") == (1, 1)
    assert type(death).__name__ in caplog.text
    assert "asr-recorder" in caplog.text


def test_a_worker_that_dies_is_replaced(
    bench: Open, make: SimpleNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = bench("bounded")

    async def run() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(there.compute, "submit", lambda job: raising(Death("no thread"))(job))
            with pytest.raises(EngineError, match="Death: no thread"):
                await there.levels(make.sound(1), make.frames(0))
        assert await there.levels(make.sound(1), make.frames(0)) == [1]

    asyncio.run(run())
    assert there.counts("crashes", "failed", "queued") == (1, 1, 0)
    assert "worker ended" in caplog.text


# Calls that hang


def test_a_call_that_hangs_fails_who_waits_until_it_comes_back(
    bench: Open, make: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    there, clip, gate = bench("immediate", timeout_s=TIMEOUT), make.sound(1, 2, 3, 4), Gate()
    there.encoder.before = gate
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        for error in await asyncio.gather(
            # Three spans: two are in the call that hangs, one waits behind it.
            there.levels(clip, make.frames(0, 1, 2)),
            there.levels(clip, make.frames(1)),
            return_exceptions=True,
        ):
            assert isinstance(error, DeadlineError)
            assert "has not returned for 0.5 s" in str(error)
        assert "has not returned for 0.5 s" in there.service.health()
        with pytest.raises(OverloadedError, match="has not returned"):
            await there.levels(clip, make.frames(3))
        gate.opened.set()
        await make.until(lambda: there.service.health() is None)
        assert await there.levels(clip, make.frames(0, 2)) == [1, 3]

    asyncio.run(run())
    assert there.counts("expired", "failed", "queued") == (1, 3, 0)
    # What came back too late was given to nobody and not kept.
    assert there.batches == [[1, 2], [1, 3]]
    assert there.counts("hits", "entries") == (0, 2)
    assert "has come back" in caplog.text


def test_a_compute_thread_that_others_hold_up_is_a_hang_too(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded", timeout_s=TIMEOUT)

    async def run() -> None:
        async with there.held():
            with pytest.raises(DeadlineError):
                await there.levels(make.sound(1), make.frames(0))
            assert there.service.health()
        await make.until(lambda: there.service.health() is None)
        assert await there.levels(make.sound(2), make.frames(0)) == [2]

    asyncio.run(run())
    assert there.batches == [[2]]


# Out of memory


@pytest.mark.parametrize("policy", ["bounded", "immediate"])
@pytest.mark.parametrize("kind", [MemoryError, torch.OutOfMemoryError])
def test_out_of_memory_keeps_no_tensor_alive(
    bench: Open,
    make: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    policy: str,
    kind: type[Exception],
) -> None:
    there, clip, tensors = bench(policy), make.sound(1, 2), []

    def before(batch: Any) -> None:
        activations = torch.zeros(1000)
        tensors.append(weakref.ref(activations))
        try:
            raise ValueError("on the way")
        except ValueError:
            raise kind("too much") from None  # the context is kept, with its frame

    there.encoder.before = before

    gc.disable()  # nothing may lean on it: frames of an exception are no garbage while somebody holds it
    try:
        requests = (there.levels(clip, make.frames(n)) for n in range(2))
        errors = asyncio.run(there.together(*requests))
        assert len(tensors) == (1 if policy == "bounded" else 3)
        assert not any(tensor() is not None for tensor in tensors)
    finally:
        gc.enable()
    assert [spoken(error) for error in errors] == ["EngineError: asr-recorder: encoding failed: out of memory"] * 2
    there.encoder.before = lambda batch: None
    assert asyncio.run(there.levels(clip, make.frames(0, 1))) == [1, 2]
    assert there.counts("crashes", "entries") == (0, 2)


def test_a_batch_too_large_for_the_memory_may_fit_in_parts(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("immediate"), make.sound(1, 2)

    def before(batch: Any) -> None:
        if len(batch) > 1:
            raise torch.OutOfMemoryError("too much")

    there.encoder.before = before
    assert asyncio.run(there.levels(clip, make.frames(0, 1))) == [1, 2]


# Callers that leave


@pytest.mark.parametrize("running", [False, True])
def test_a_leader_that_leaves_does_not_fail_its_followers(bench: Open, make: SimpleNamespace, running: bool) -> None:
    there, clip, gate = bench("bounded"), make.sound(1, 2), Gate()
    there.encoder.before = gate

    async def run() -> None:
        async with there.held():
            leader = asyncio.create_task(there.levels(clip, make.frames(0, 1)))
            await make.until(lambda: there.counts("misses") == (2,))
            follower = asyncio.create_task(there.levels(clip, make.frames(1)))
            await make.until(lambda: there.counts("merged") == (1,))
            if not running:
                leader.cancel()
        await gate.reached()
        leader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leader
        gate.opened.set()
        assert await follower == [2]

    asyncio.run(run())
    # What nobody waits for any more is not begun, but finished once it is.
    assert there.batches == ([[1, 2]] if running else [[2]])
    assert there.counts("failed", "unwanted") == (0, not running)
    assert asyncio.run(there.levels(clip, make.frames(0))) == [1]
    assert there.counts("hits", "entries") == (int(running), 2)


def test_a_request_that_leaves_leaves_nothing_in_the_queue(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("immediate"), make.sound(1, 1, 2)

    async def run() -> None:
        async with there.held():
            leaving = asyncio.create_task(there.levels(clip, make.frames(0, 1, 2)))
            await make.until(lambda: there.counts("misses", "merged") == (2, 1))
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert there.counts("queued", "unwanted") == (0, 2)
        assert await there.levels(clip, make.frames(2, 1)) == [2, 1]

    asyncio.run(run())
    assert there.batches == [[2, 1]]


def test_leaving_what_has_landed_takes_nothing_from_who_asked_later(bench: Open, make: SimpleNamespace) -> None:
    there, clip, gate = bench("immediate", max_items=1, cache_entries=0), make.sound(1, 2), Gate()
    there.encoder.before = lambda batch: gate() if batch == [[2]] else None

    async def run() -> None:
        early = asyncio.create_task(there.levels(clip, make.frames(0, 1)))
        await gate.reached()
        late = asyncio.create_task(there.levels(clip, make.frames(0)))
        await make.until(lambda: there.counts("queued") == (1,))
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        gate.opened.set()
        assert await asyncio.wait_for(late, 30) == [1]

    asyncio.run(run())
    assert there.batches == [[1], [2], [1]]


def test_a_failed_batch_is_not_tried_again_for_nobody(bench: Open, make: SimpleNamespace) -> None:
    there, clip, gate = bench("immediate"), make.sound(1, 2), Gate()
    failures = iter([ValueError("only once")])

    def before(batch: Any) -> None:
        gate(batch)
        if error := next(failures, None):
            raise error

    there.encoder.before = before

    async def run() -> None:
        async with there.held():
            leaving = asyncio.create_task(there.levels(clip, make.frames(0)))
            await make.until(lambda: there.counts("misses") == (1,))
            staying = asyncio.create_task(there.levels(clip, make.frames(1)))
            await make.until(lambda: there.counts("misses") == (2,))
        await gate.reached()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        gate.opened.set()
        assert await staying == [2]

    asyncio.run(run())
    assert there.batches == [[1, 2], [2]]
    assert there.counts("unwanted", "failed") == (1, 0)


def test_a_leader_that_times_out_does_not_fail_its_followers(bench: Open, make: SimpleNamespace) -> None:
    there, clip, gate = bench("bounded"), make.sound(1), Gate()
    there.encoder.before = gate

    async def lead(patience: asyncio.Timeout) -> None:
        async with patience:
            await there.service.encode(clip, make.frames(0))

    async def run() -> None:
        patience = asyncio.timeout(None)
        leader = asyncio.create_task(lead(patience))
        await gate.reached()
        follower = asyncio.create_task(there.levels(clip, make.frames(0)))
        await make.until(lambda: there.counts("merged") == (1,))
        patience.reschedule(asyncio.get_running_loop().time())
        with pytest.raises(TimeoutError):
            await leader
        gate.opened.set()
        assert await follower == [1]

    asyncio.run(run())
    assert there.batches == [[1]]


def test_a_loop_that_is_gone_takes_nothing_with_it(bench: Open, make: SimpleNamespace) -> None:
    there, clip, gate = bench("bounded"), make.sound(1), Gate()
    there.encoder.before = gate

    async def leave() -> None:
        task = asyncio.create_task(there.levels(clip, make.frames(0)))
        await gate.reached()
        task.cancel()

    asyncio.run(leave())
    gate.opened.set()
    assert asyncio.run(there.levels(clip, make.frames(0))) == [1]
    assert there.batches == [[1]]


# A full queue


def test_a_full_queue_refuses_a_request_whole(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("immediate", queue_bound=3), make.sound(1, 2, 3, 4, 5, 6)
    results = asyncio.run(
        there.together(
            there.levels(clip, make.frames(0, 1)),
            there.levels(clip, make.frames(2, 3)),
            there.levels(clip, make.frames(0, 4)),
        )
    )
    assert (results[0], results[2]) == ([1, 2], [1, 5])
    assert isinstance(results[1], OverloadedError)
    assert there.batches == [[1, 2], [5]]
    assert there.counts("refused", "misses", "failed") == (1, 3, 0)


def test_an_empty_queue_takes_a_clip_of_any_length(bench: Open, make: SimpleNamespace) -> None:
    there, clip = bench("immediate", queue_bound=1), make.sound(1, 2, 3)
    assert asyncio.run(there.levels(clip, make.frames(0, 1, 2))) == [1, 2, 3]


# Closing


def test_closing_lets_the_running_batch_finish_and_fails_the_rest(bench: Open, make: SimpleNamespace) -> None:
    there, clip, gate = bench("immediate"), make.sound(1, 2, 3), Gate()
    there.encoder.before = gate

    async def run() -> None:
        running = asyncio.create_task(there.levels(clip, make.frames(0, 1)))
        await gate.reached()
        waiting = asyncio.create_task(there.levels(clip, make.frames(2)))
        await make.until(lambda: there.counts("queued") == (1,))
        closing = asyncio.create_task(asyncio.to_thread(there.service.close))
        with pytest.raises(OverloadedError, match="was closed"):
            await waiting
        with pytest.raises(OverloadedError, match="is closed"):
            await there.levels(clip, make.frames(0))
        gate.opened.set()
        assert await running == [1, 2]
        await closing

    asyncio.run(run())
    there.service.close()
    assert there.counts("queued", "entries", "bytes") == (0, 0, 0)
    assert there.batches == [[1, 2]]


def test_closing_during_features_refuses_the_request(bench: Open, make: SimpleNamespace) -> None:
    there, gate = bench("bounded"), Gate()
    there.encoder.listen = gate

    async def run() -> None:
        listening = asyncio.create_task(there.levels(make.sound(1), make.frames(0)))
        await gate.reached()
        there.service.close()
        gate.opened.set()
        with pytest.raises(OverloadedError, match="is closed"):
            await listening

    asyncio.run(run())
    assert there.batches == []


def test_nothing_is_tried_again_after_closing(bench: Open, make: SimpleNamespace) -> None:
    there, clip, gate = bench("immediate"), make.sound(1, 2), Gate()

    def before(batch: Any) -> None:
        gate(batch)
        raise ValueError("no")

    there.encoder.before = before

    async def run() -> None:
        running = asyncio.create_task(there.levels(clip, make.frames(0, 1)))
        await gate.reached()
        closing = asyncio.create_task(asyncio.to_thread(there.service.close))
        await make.until(lambda: there.service._worker._closed)
        gate.opened.set()
        with pytest.raises(PluginError):
            await running
        await closing

    asyncio.run(run())
    assert there.batches == [[1, 2]]


@pytest.mark.parametrize("before_the_hang", [True, False])
def test_closing_does_not_wait_for_a_call_that_hangs(bench: Open, make: SimpleNamespace, before_the_hang: bool) -> None:
    there, gate = bench("bounded", timeout_s=TIMEOUT), Gate()
    there.encoder.before = gate

    async def run() -> None:
        running = asyncio.create_task(there.levels(make.sound(1), make.frames(0)))
        await gate.reached()
        if not before_the_hang:
            await make.until(lambda: bool(there.service.health()))
        await asyncio.wait_for(asyncio.to_thread(there.service.close), 30)
        with pytest.raises(DeadlineError):
            await running

    asyncio.run(run())
    gate.opened.set()
    there.compute.submit(int).result(30)
    assert there.counts("entries") == (0,)


def test_a_compute_thread_that_closes_first_fails_what_waits(bench: Open, make: SimpleNamespace) -> None:
    there = bench("bounded")

    async def run() -> None:
        async with there.held():
            waiting = asyncio.create_task(there.levels(make.sound(1), make.frames(0)))
            await make.until(lambda: there.counts("queued") == (1,))
            closing = asyncio.create_task(asyncio.to_thread(there.compute.close))
            with pytest.raises(OverloadedError, match="closed"):
                await asyncio.wait_for(waiting, 30)
        await closing
        with pytest.raises(OverloadedError, match="closed"):
            await there.levels(make.sound(2), make.frames(0))

    asyncio.run(run())
