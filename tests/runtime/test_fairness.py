"""Nobody waits for all of another's work: the spans of many take turns."""

from __future__ import annotations

import numpy as np

from asr_core.runtime._batches import BatchQueue, Flight
from asr_core.types import EncoderPolicy, Feature


def flight(caller: int, number: int) -> Flight:
    return Flight((bytes([caller, number]), 1), Feature(np.zeros(1, np.float32), 1), cost=1.0, caller=caller)


def order(waiting: BatchQueue) -> list[list[tuple[int, int]]]:
    batches: list[list[tuple[int, int]]] = []
    while batch := waiting.take():
        batches.append([(flight.address[0][0], flight.address[0][1]) for flight in batch])
    return batches


def queue(**policy: int) -> BatchQueue:
    waiting = BatchQueue(EncoderPolicy(**policy))
    for caller, number in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2)]:
        waiting.push(flight(caller, number))
    return waiting


def test_every_callers_first_span_comes_before_anyones_second() -> None:
    assert order(queue(max_items=1)) == [[(1, 1)], [(2, 1)], [(3, 1)], [(1, 2)], [(3, 2)], [(1, 3)]]


def test_newcomers_without_end_do_not_stop_who_waits() -> None:
    waiting = BatchQueue(EncoderPolicy(max_items=1))
    for number in range(4):
        waiting.push(flight(1, number))
    taken = []
    for newcomer in range(2, 14):
        waiting.push(flight(newcomer, 0))
        taken += [one.caller for one in waiting.take()]
    assert taken.count(1) >= 3


def test_a_span_that_is_tried_again_goes_first_and_alone() -> None:
    waiting = queue(max_items=8)
    again = flight(9, 9)
    again.alone = True
    waiting.push_front([again])
    assert order(waiting)[0] == [(9, 9)]


def test_a_batch_is_no_longer_than_the_others_can_wait() -> None:
    waiting = queue(max_items=8)
    waiting.seconds = 0.12
    assert [len(batch) for batch in order(waiting)] == [2, 2, 2]
    slow = queue(max_items=8)
    slow.seconds = 5.0
    assert [len(batch) for batch in order(slow)] == [1] * 6
