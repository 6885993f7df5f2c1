"""How much memory a process took at its peak, beyond what it imports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from asr_core.errors import BenchError

IMPORTS = ("asr_core.serve", "torch", "transformers.modeling_utils")
"""What stands in memory before a weight is read, by name, so that a benchmark of a server need not have it here."""

_PROC = Path("/proc")


def level() -> float:
    """MiB of this process with all of :data:`IMPORTS`."""
    for name in IMPORTS:
        importlib.import_module(name)
    return resident()


def resident() -> float:
    """MiB of this process now."""
    return _read("self", "VmRSS")


def level_of(python: str = sys.executable, imports: Sequence[str] = IMPORTS) -> float:
    """MiB of a process of ``python`` with ``imports`` and nothing else."""
    code = f"import {', '.join(imports)}; print(open('/proc/self/status').read())"
    # The interpreter is this one, or one that the operator named.
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    return _mib(done.stdout, "VmRSS")


def peak(pid: int | None = None) -> float:
    """MiB that this process, or another, ever had.

    Raises:
        BenchError: there is no such process.
    """
    return _read("self" if pid is None else str(pid), "VmHWM")


def peak_above(level: float, pid: int) -> float:
    """MiB by which a process and all it started were above ``level``, each of them for itself."""
    return sum(max(0.0, peak(member) - level) for member in family(pid))


def family(pid: int) -> list[int]:
    """``pid`` and its descendants.

    Raises:
        BenchError: there is no such process.
    """
    if not (_PROC / str(pid)).is_dir():
        raise BenchError(f"there is no process {pid}", param="pid")
    children = (_PROC / str(pid) / "task").glob("*/children")
    return [pid, *(member for file in children for child in file.read_text().split() for member in family(int(child)))]


def _read(process: str, key: str) -> float:
    try:
        return _mib((_PROC / process / "status").read_text(), key)
    except OSError as error:
        raise BenchError(f"there is no process {process}", param="pid") from error


def _mib(status: str, key: str) -> float:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(key)) / 1024
