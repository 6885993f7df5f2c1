"""Who runs, who waits and what is computed next, turn by turn, with no clock and no module."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest

from asr_core.engines.protocol import EncodedRows, GenerationRequest
from asr_core.engines.torch import EngineLimits
from asr_core.engines.torch._runs import Run
from asr_core.engines.torch._scheduler import Scheduler
from asr_core.errors import OverloadedError

IDS = count()


def a_run(prompt: int | tuple[int, ...] = 1, caller: str = "", **fields: Any) -> Run:
    tokens = tuple(range(prompt)) if isinstance(prompt, int) else prompt
    request = GenerationRequest(id=str(next(IDS)), prompt=(tokens,), budget=100, caller=caller, **fields)
    return Run.of(request, None, lambda item: True)


class Desk:
    """A scheduler whose every row succeeds at once; ``log`` has what each turn computed, as (caller, positions)."""

    def __init__(self, **limits: Any) -> None:
        self.scheduler = Scheduler(EngineLimits(**limits))
        self.log: list[list[tuple[str, int]]] = []

    def add(self, *runs: Run) -> None:
        for run in runs:
            self.scheduler.add(run)

    def turn(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.scheduler.admit()
            works = self.scheduler.plan()
            for work in works:
                self.scheduler.done(work)
                if not work.run.reading:
                    work.run.output.append(7)
            self.log.append([(work.run.request.caller, work.row.length) for work in works])

    def end(self, run: Run, *, keep: bool = True) -> None:
        self.scheduler.vacate(run, keep=keep)
        run.ended = True
        self.scheduler.leave(run)


def test_a_long_prompt_stops_nobody() -> None:
    desk = Desk(prefill_chunk=10)
    desk.add(stream := a_run(3))
    desk.turn()
    desk.add(a_run(35))
    desk.turn(5)
    assert desk.log == [[("", 3)], *[[("", 1), ("", 10)]] * 3, [("", 1), ("", 5)], [("", 1), ("", 1)]]
    assert stream.generated == 6


def test_only_the_last_chunk_is_answered() -> None:
    desk = Desk(prefill_chunk=4)
    desk.add(a_run(9))
    wants = []
    for _ in range(4):
        desk.scheduler.admit()
        (work,) = desk.scheduler.plan()
        wants.append((work.row.start, work.row.length, work.row.want))
        desk.scheduler.done(work)
        work.run.output.append(7)
        del work.run.output[: work.run.reading]
    assert wants == [(0, 4, 0), (4, 4, 0), (8, 1, 1), (9, 1, 1)]


def test_a_hundred_requests_of_one_caller_cost_another_nothing() -> None:
    """Two slots: the one request of the other caller is the very next to get one."""
    desk = Desk(max_running=2)
    crowd = [a_run(5, "crowd") for _ in range(100)]
    desk.add(*crowd)
    desk.turn(3)
    desk.add(lone := a_run(5, "lone"))
    desk.turn()
    assert lone.slot is None
    desk.end(crowd[0])
    desk.turn()
    assert lone.slot is not None
    assert lone.generated == 1


def test_slots_are_shared_by_callers() -> None:
    desk = Desk(max_running=6)
    desk.add(*(a_run(1, "a") for _ in range(50)), *(a_run(1, "b") for _ in range(50)), a_run(1, "c"))
    desk.turn()
    assert Counter(run.request.caller for run in desk.scheduler.running) == {"a": 3, "b": 2, "c": 1}


def test_chunks_of_prompts_are_shared_by_callers() -> None:
    """Three long prompts of one caller and one of another: each caller gets every second chunk."""
    desk = Desk(prefill_chunk=10)
    desk.add(*(a_run(40, "a") for _ in range(3)), a_run(40, "b"))
    desk.turn(8)
    chunks = [caller for turn in desk.log for caller, length in turn if length == 10]
    assert Counter(chunks) == {"a": 4, "b": 4}


def test_a_short_prompt_goes_along_with_a_long_one() -> None:
    desk = Desk(prefill_chunk=10)
    desk.add(a_run(100, "long"))
    desk.turn(2)
    desk.add(a_run(4, "short"))
    desk.turn(2)
    # A caller who comes starts level, so the first of the two may be either; after it, it is the other's turn.
    assert {turn for later in desk.log[2:] for turn in later} >= {("short", 4)}


def test_time_away_is_no_credit() -> None:
    """One who was away while another was served a lot does not get as much before it is shared again."""
    desk = Desk(prefill_chunk=10)
    desk.add(a_run(400, "here"))
    desk.turn(20)
    desk.add(a_run(400, "back"))
    desk.turn(4)
    assert Counter(caller for turn in desk.log[20:] for caller, _ in turn) == {"here": 2, "back": 2}


def test_first_come_first_served_within_a_caller() -> None:
    desk = Desk(max_running=1)
    runs = [a_run(1) for _ in range(4)]
    desk.add(*runs)
    for run in runs:
        desk.turn()
        assert desk.scheduler.running == [run]
        desk.end(run)


def test_the_queue_is_bounded() -> None:
    desk = Desk(max_running=2, max_queued=3)
    desk.add(*(a_run() for _ in range(5)))
    with pytest.raises(OverloadedError, match="5 requests are waiting"):
        desk.add(a_run())
    desk.turn()
    assert (desk.scheduler.queued, len(desk.scheduler.running)) == (3, 2)
    with pytest.raises(OverloadedError, match="3 requests are waiting"):
        desk.add(a_run())
    desk.scheduler.leave(desk.scheduler.waiting()[1])
    desk.add(a_run())


def slot_after(first: Run, second: Run, turns: int = 3) -> int:
    """At which position ``second`` starts in the slot that ``first`` has left."""
    desk = Desk(max_running=1)
    desk.add(first)
    desk.turn(turns)
    desk.end(first)
    desk.add(second)
    desk.scheduler.admit()
    return second.position


def test_an_equal_beginning_is_not_computed_again() -> None:
    assert slot_after(a_run((1, 2, 3, 4)), a_run((1, 2, 3, 9, 9))) == 3
    assert slot_after(a_run((1, 2, 3)), a_run((2, 2, 3))) == 0


def test_output_counts_as_what_it_was() -> None:
    """After three turns the slot holds the prompt and two tokens; the third was decided but never read."""
    assert slot_after(a_run((1, 2)), a_run((1, 2, 7, 7, 7, 7))) == 4
    assert slot_after(a_run((1, 2)), a_run((1, 2, 7), given=(7, 7, 7))) == 4


def test_one_position_is_always_computed() -> None:
    assert slot_after(a_run((1, 2, 3)), a_run((1, 2, 3))) == 2
    assert slot_after(a_run((1,)), a_run((1,))) == 0


def rows(key: bytes, number: int = 3) -> EncodedRows:
    return EncodedRows([[0.0]] * number, key)


def heard(*prompt: Any, **fields: Any) -> Run:
    request = GenerationRequest(id=str(next(IDS)), prompt=prompt, budget=9, **fields)
    return Run.of(request, None, lambda item: True)


def test_rows_are_equal_by_key_and_number() -> None:
    assert slot_after(heard((1,), rows(b"a"), (2,)), heard((1,), rows(b"a"), (3,))) == 4
    assert slot_after(heard((1,), rows(b"a"), (2,)), heard((1,), rows(b"b"), (2,))) == 1
    assert slot_after(heard(rows(b"a", 2)), heard(rows(b"a", 5))) == 2


def test_what_is_heard_must_be_equal_too() -> None:
    assert slot_after(heard((1, 2), cross=rows(b"a")), heard((1, 2, 3), cross=rows(b"b"))) == 0
    assert slot_after(heard((1, 2)), heard((1, 2, 3), cross=rows(b"b"))) == 0


def test_many_who_begin_to_listen_stop_nobody() -> None:
    """Hearing rows costs as much as reading them: one beginner a turn, and two where both fit."""
    desk = Desk(prefill_chunk=10)
    desk.add(*(heard((1, 2), cross=rows(b"long", 20)) for _ in range(2)))
    desk.add(*(heard((1, 2), cross=rows(b"short", 3)) for _ in range(3)))
    for _ in range(5):
        desk.turn()
        for run in desk.scheduler.running:
            if run.slot and not run.reading:
                run.slot.cross = run.cross
    assert [sum(length == 2 for _, length in turn) for turn in desk.log] == [1, 1, 2, 1, 0]


def test_the_slot_with_the_longest_beginning_is_taken() -> None:
    desk = Desk(max_running=3)
    runs = [a_run((1, 2)), a_run((1, 2, 3, 4)), a_run((9,))]
    desk.add(*runs)
    desk.turn()
    for run in runs:
        desk.end(run)
    desk.add(longest := a_run((1, 2, 3, 5)), stranger := a_run((8,)), other := a_run((1, 2, 9)))
    desk.turn()
    assert [run.slot for run in (longest, stranger, other)] == [runs[1].slot, runs[0].slot, runs[2].slot]


def test_a_slot_that_is_not_kept_is_empty() -> None:
    desk = Desk(max_running=1)
    desk.add(first := a_run((1, 2, 3)))
    desk.turn()
    desk.end(first, keep=False)
    desk.add(second := a_run((1, 2, 3)))
    assert desk.scheduler.admit() == 0
    assert second.position == 0


def test_a_step_has_as_many_rows_of_one_caller_as_of_all_others() -> None:
    """What one row more costs everybody, a caller with many pays in turns."""
    desk = Desk()
    many = [a_run(1, "many") for _ in range(6)]
    desk.add(*many)
    desk.turn()
    desk.add(one := a_run(1, "one"))
    desk.turn(7)
    assert all(Counter(caller for caller, _ in turn)["many"] == 1 for turn in desk.log[2:])
    assert one.generated == 7
    assert {run.generated for run in many} == {2, 3}
    desk.end(one)
    desk.turn()
    assert len(desk.log[-1]) == 6


def test_newcomers_cannot_hold_back_who_is_here() -> None:
    """One slot, and always somebody new who waits: a caller's later requests get their turn all the same."""
    desk = Desk(max_running=1)
    here = [a_run(1, "here") for _ in range(3)]
    desk.add(*here)
    waiting = set(here)
    for number in range(200):
        desk.add(a_run(1, f"new {number}"))
        desk.turn(3)
        (run,) = desk.scheduler.running
        waiting.discard(run)
        desk.end(run)
    assert not waiting
