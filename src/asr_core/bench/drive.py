"""Requests from a fixed number of callers, each of whom makes the next one when the last is answered."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from threading import Barrier, Thread

from attrs import field, frozen

from asr_core.bench.sounds import Sound, unique, wav


@frozen(eq=False)
class Request:
    """A sound as it is sent: ``wav`` is no other request's."""

    sound: Sound
    wav: bytes = field(repr=False)


@frozen
class Reply:
    """A text, and when on the monotonic clock its first delta came, if it was streamed."""

    text: str
    first_at: float | None = None


Target = Callable[[Request], Reply]
"""Whoever is measured, asked from many threads at once; raises :class:`RequestFailed`, or anything, for a failure."""


class RequestFailed(Exception):  # noqa: N818  (no error of ours: what is measured made it)
    """A request that was refused or broke; ``kind`` is the same for failures of one sort."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@frozen(eq=False)
class Outcome:
    """What became of a request: a reply after ``seconds``, or else a failure's kind and message."""

    sound: Sound
    seconds: float
    text: str | None = None
    first: float | None = None
    failure: tuple[str, str] | None = None


@frozen(eq=False)
class Round:
    """Requests that so many callers made, and the seconds from the first one's start to the last one's end.

    ``cpu`` is what this process computed meanwhile, on all cores: the client's own cost where a server answers.
    """

    callers: int
    seconds: float
    cpu: float
    outcomes: tuple[Outcome, ...] = field(repr=False)


def prepare(sounds: Sequence[Sound], count: int, seed: int, first: int = 0) -> list[Request]:
    """``count`` requests, the sounds in turn; with other numbers from ``first`` on, or another seed, others."""
    taken = enumerate(islice(cycle(sounds), count), first)
    return [Request(sound, wav(unique(sound.samples, seed, number))) for number, sound in taken]


def drive(target: Target, requests: Sequence[Request], callers: int) -> Round:
    """Make all the requests; the clock starts when every caller is ready."""
    waiting, outcomes = deque(requests), list[Outcome]()
    ready = Barrier(callers + 1)

    def call() -> None:
        ready.wait()
        # A deque hands every request to one caller only.
        while request := _next(waiting):
            outcomes.append(_ask(target, request))

    threads = [Thread(target=call, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    ready.wait()
    begun, computed = time.monotonic(), time.process_time()
    for thread in threads:
        thread.join()
    return Round(callers, time.monotonic() - begun, time.process_time() - computed, tuple(outcomes))


def _next(waiting: deque[Request]) -> Request | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _ask(target: Target, request: Request) -> Outcome:
    begun = time.monotonic()
    try:
        reply = target(request)
    except RequestFailed as failed:
        failure = (failed.kind, str(failed))
    except Exception as error:  # a request's own failure, whatever it is, is counted and stops no other
        failure = (type(error).__name__, str(error))
    else:
        first = None if reply.first_at is None else reply.first_at - begun
        return Outcome(request.sound, time.monotonic() - begun, reply.text, first)
    return Outcome(request.sound, time.monotonic() - begun, failure=failure)
