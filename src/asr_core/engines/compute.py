"""The one thread that computes, shared by every model of a process.

Two models that computed at once would fight over the cores that torch already fills with its own threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from asr_core.errors import OverloadedError

P = ParamSpec("P")
T = TypeVar("T")


class Compute:
    """Jobs run one at a time in the order they came; a job that wants more turns submits itself again at its end."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="asr-compute", initializer=_without_gradients)
        self.newcomers: set[object] = set()
        """Requests that are about their first clip: whoever has many clips makes room for them."""

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
