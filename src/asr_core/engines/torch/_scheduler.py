"""Who waits, who runs in which slot, and what the next forward computes; knows no tensors and takes no time.

Everything here happens under the engine's lock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from attrs import frozen

from asr_core.engines.torch._batch import Row
from asr_core.engines.torch._fairness import Shares
from asr_core.engines.torch._limits import EngineLimits
from asr_core.engines.torch._runs import Run, Slot
from asr_core.errors import BusyError


@frozen(eq=False)
class Work:
    """One row of the coming forward and whose it is."""

    run: Run
    slot: Slot
    row: Row


class Scheduler:
    """Requests wait by caller, get a slot between tokens, and advance together."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._shares = Shares()
        self._waiting: dict[str, deque[Run]] = {}
        self._free: list[Slot] = []  # the one that was used least recently first
        self._opened = 0
        self._turns = 0
        self.running: list[Run] = []

    @property
    def queued(self) -> int:
        """How many requests wait for a slot."""
        return sum(map(len, self._waiting.values()))

    def waiting(self) -> list[Run]:
        """The requests without a slot."""
        return [run for runs in self._waiting.values() for run in runs]

    def add(self, run: Run) -> None:
        """Let ``run`` wait.

        Raises:
            BusyError: there is neither a slot for it nor room to wait.
        """
        here = self.queued + sum(not run.ended for run in self.running)
        if here >= self._limits.max_running + self._limits.max_queued:
            raise BusyError(f"{self.queued} requests are waiting already")
        self._waiting.setdefault(run.request.caller, deque()).append(run)
        self._shares.enter(run.request.caller)

    def leave(self, run: Run) -> None:
        """``run`` has ended; its slot, if it has one, is vacated in the next turn."""
        self._shares.leave(run.request.caller)
        if run.slot is None:
            self._unqueue(run)

    def admit(self) -> int:
        """Give free slots to those who wait; how many positions need not be computed again."""
        reused = 0
        while self._waiting and len(self.running) < self._limits.max_running:
            running = Counter(run.request.caller for run in self.running)
            run = self._waiting[self._shares.poorest(self._waiting, running)][0]
            self._unqueue(run)
            self._settle_in(run)
            reused += run.position
            self.running.append(run)
        return reused

    def plan(self) -> list[Work]:
        """A step for those who generate, and ``prefill_chunk`` positions of what is being read or heard."""
        steps = [Work(run, slot, run.step(slot.number)) for run, slot in self._stepping()]
        for work in steps:
            self._shares.charge(work.run.request.caller, work.row.length)
        return [*steps, *self._chunks()]

    def done(self, work: Work) -> None:
        """The row is in memory; of branches only what they start from is an equal beginning for others."""
        end = work.row.start + (0 if work.row.branches else work.row.length)
        work.run.position = end
        del work.slot.held[work.row.start :]
        work.slot.held += [work.run.key(position) for position in range(work.row.start, end)]

    def vacate(self, run: Run, *, keep: bool) -> None:
        """Take the slot back, remembering what it holds if it is to be kept."""
        self.running.remove(run)
        if run.slot is not None:
            if not keep:
                run.slot.held.clear()
                run.slot.cross = None
            self._free.append(run.slot)

    def _unqueue(self, run: Run) -> None:
        queue = self._waiting[run.request.caller]
        queue.remove(run)
        if not queue:
            del self._waiting[run.request.caller]

    def _settle_in(self, run: Run) -> None:
        """The free slot with the longest equal beginning, else the one used least recently, else a new one."""
        if self._free:
            slot = max(self._free, key=lambda slot: slot.match(run.keys, run.cross))
            self._free.remove(slot)
        else:
            slot = Slot(self._opened)
            self._opened += 1
        run.slot = slot
        # At least one position is computed, as there is nothing to choose from without logits; and all of them for one
        # that attends, as what was found in memory would have looked at nothing.
        run.position = 0 if run.request.attend else min(slot.match(run.keys, run.cross), run.length - 1)

    def _stepping(self) -> list[tuple[Run, Slot]]:
        """Of each caller as many runs as all others have here, in turns: a row more makes everybody's step longer."""
        self._turns += 1
        here = Counter(run.request.caller for run, _ in self._seated())
        taken: Counter[str] = Counter()
        stepping = []
        for run, slot in sorted(self._seated(), key=lambda seated: seated[0].turn):
            caller = run.request.caller
            alone = here[caller] == here.total()
            if not run.reading and (alone or taken[caller] < max(1, here.total() - here[caller])):
                taken[caller] += 1
                run.turn = self._turns
                stepping.append((run, slot))
        return stepping

    def _chunks(self) -> Iterator[Work]:
        left = self._limits.prefill_chunk
        reading: dict[str, list[tuple[Run, Slot]]] = {}
        for run, slot in self._seated():
            if run.reading:
                reading.setdefault(run.request.caller, []).append((run, slot))
        while left > 0 and reading:
            caller = self._shares.poorest(reading)
            run, slot = reading[caller].pop(0)
            if not reading[caller]:
                del reading[caller]
            count = min(left, run.length - run.position)
            cost = count + _unheard(run, slot)
            left -= cost
            self._shares.charge(caller, cost)
            yield Work(run, slot, run.chunk(slot.number, count))

    def _seated(self) -> Iterator[tuple[Run, Slot]]:
        return ((run, run.slot) for run in self.running if run.slot is not None and not run.ended)


def _unheard(run: Run, slot: Slot) -> int:
    """Encoder rows that are yet to be heard: they cost as much as positions, so streams need not wait for many."""
    return 0 if run.request.cross is None or slot.cross == run.cross else len(run.request.cross.rows)
