"""Who is measured. Each is a process of its own, and stands still while it is another's turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from attrs import asdict, field, frozen

from asr_core.bench.drive import Outcome, Round, drive, prepare
from asr_core.bench.memory import family, level_of, peak_above
from asr_core.bench.remote import Remote
from asr_core.testing.server import Server

from .sets import Set
from .weights import MODEL, Weights


class Absent(Exception):  # noqa: N818  (no error: it is left out, and the message says why)
    """Somebody who cannot be measured here."""


@frozen
class Turn:
    """``count`` requests of a set from so many callers; ``seed`` and ``first`` choose the noise in them."""

    of: Set
    count: int
    callers: int
    seed: int
    first: int


class System(Protocol):
    """Somebody who answers; ``pid`` is the process that started all others of it."""

    @property
    def pid(self) -> int: ...

    def play(self, turn: Turn) -> Round:
        """Make the requests of one round."""

    def memory(self) -> float:
        """MiB at the peak so far, above the level after imports."""


Start = Callable[[Path, Weights], AbstractContextManager[System]]
"""Begins one, with a directory for its log, and ends it."""


@frozen(eq=False)
class OverHttp:
    """A server, asked by the client of ``asr-core bench``; ``level`` is of one of its processes after imports."""

    url: str
    pid: int
    level: float

    def play(self, turn: Turn) -> Round:
        # Connections of an earlier turn may have ended while the server stood still.
        with Remote(self.url, MODEL) as remote:
            return drive(remote, prepare(turn.of.sounds, turn.count, turn.seed, turn.first), turn.callers)

    def memory(self) -> float:
        return peak_above(self.level, self.pid)


@contextmanager
def asr_core(directory: Path, weights: Weights, *options: str) -> Iterator[System]:
    """Its server; ``options`` are added to the defaults."""
    server = Server(directory, dict(os.environ), "--model", MODEL, *options)
    try:
        yield OverHttp(server.url, server.process.pid, level_of())
    finally:
        server.close()


@frozen(eq=False)
class InProcess:
    """A library behind pipes."""

    process: subprocess.Popen[str] = field(repr=False)
    level: float

    @property
    def pid(self) -> int:
        return self.process.pid

    def play(self, turn: Turn) -> Round:
        asked = asdict(turn, filter=lambda attribute, _: attribute.name != "of")
        answer = _ask(self.process, {"manifest": str(turn.of.manifest), **asked})
        outcomes = tuple(_outcome(turn.of, one) for one in answer["outcomes"])
        return Round(turn.callers, answer["seconds"], answer["cpu"], outcomes)

    def memory(self) -> float:
        return peak_above(self.level, self.process.pid)


@contextmanager
def in_process(name: str, directory: Path, weights: Weights) -> Iterator[System]:
    """The library of this name in a worker."""
    command = [sys.executable, "-m", "benchmarks.peers.worker", name, str(weights.directory)]
    with (
        (directory / "output.txt").open("w") as log,
        subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout
            if not (ready := process.stdout.readline()):
                raise Absent((directory / "output.txt").read_text().strip().rpartition("\n")[2])
            yield InProcess(process, json.loads(ready)["level"])
        finally:
            process.kill()


def _outcome(of: Set, told: dict[str, Any]) -> Outcome:
    failure = told["failure"]
    return Outcome(
        of.sounds[told["sound"]], told["seconds"], told["text"], failure=failure and (failure[0], failure[1])
    )


def _ask(process: subprocess.Popen[str], turn: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin
    assert process.stdout
    print(json.dumps(turn), file=process.stdin, flush=True)
    line = process.stdout.readline()
    assert line, f"{process.args} ended"
    answer: dict[str, Any] = json.loads(line)
    return answer


def pause(system: System) -> None:
    """Let it have no core until :func:`resume`."""
    _signal(system, signal.SIGSTOP)


def resume(system: System) -> None:
    """Let it go on."""
    _signal(system, signal.SIGCONT)


def _signal(system: System, number: signal.Signals) -> None:
    for member in family(system.pid):
        os.kill(member, number)
