"""The one thread that computes, shared by every model of a process.

Two models that computed at once would fight over the cores that torch already fills with its own threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from asr_core.errors import OverloadedError
from asr_core.types import Waveform

P = ParamSpec("P")
T = TypeVar("T")


class Newcomer(Protocol):
    """A request; no two of them share a waveform."""

    @property
    def waveform(self) -> Waveform:
        """What it is to hear."""


class Newcomers:
    """Requests that are about their first clip: whoever has many clips makes room for them.

    ``changed`` guards them and is told of everybody who comes or goes; whoever waits for that and for something of
    its own uses it as its lock.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._arrived: dict[Newcomer, float] = {}

    def hear(self, waveform: Waveform) -> bool:
        """Whether it is a newcomer's."""
        with self.changed:
            return any(request.waveform is waveform for request in self._arrived)

    def since(self, *, besides: Collection[int]) -> float | None:
        """The :func:`time.monotonic` at which the first of those came whose waveform's ``id`` is not among these."""
        with self.changed:
            others = (at for request, at in self._arrived.items() if id(request.waveform) not in besides)
            return min(others, default=None)

    def add(self, request: Newcomer) -> None:
        """It arrives now."""
        with self.changed:
            self._arrived[request] = time.monotonic()
            self.changed.notify_all()

    def discard(self, request: Newcomer) -> None:
        """Its first clip is done, or it has ended; harmless for one who is not here."""
        with self.changed:
            self._arrived.pop(request, None)
            self.changed.notify_all()


class Compute:
    """Jobs run one at a time in the order they came; a job that wants more turns submits itself again at its end."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="asr-compute", initializer=_without_gradients)
        self.newcomers = Newcomers()

    def submit(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a job from any thread.

        Raises:
            OverloadedError: after :meth:`close`.
        """
        try:
            return self._executor.submit(job, *args, **kwargs)
        except RuntimeError as error:
            raise OverloadedError("the compute thread is closed") from error

    def close(self) -> None:
        """Finish the running job, drop the waiting ones."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def _without_gradients() -> None:
    import torch

    torch.set_grad_enabled(False)  # per thread, so nobody else's training is touched
