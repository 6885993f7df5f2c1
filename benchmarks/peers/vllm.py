"""vLLM's server for the CPU, from an environment of its own, as its versions of everything are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from asr_core.bench.memory import level_of
from asr_core.kernels import fastest_dtype

from .systems import Absent, OverHttp, System
from .weights import MODEL, Weights

PATIENCE_S = 300.0

IMPORTS = ("vllm.entrypoints.openai.api_server", "vllm.model_executor.models.whisper")

DTYPE = fastest_dtype("cpu")
"""Emulated bfloat16 takes it minutes for a request."""


@contextmanager
def vllm(python: Path, directory: Path, weights: Weights) -> Iterator[System]:
    """Its server by the interpreter of an environment that has it."""
    if not python.is_file():
        raise Absent(f"there is no {python}")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (directory / "output.txt").open("w") as log:
        # A group of its own, as it starts processes that outlive it when it is killed.
        process = subprocess.Popen(  # noqa: S603
            _command(python, port, weights),
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(python),
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(process, url, directory / "output.txt")
        yield OverHttp(url, process.pid, level_of(str(python), IMPORTS))
    finally:
        _end(process)


def _command(python: Path, port: int, weights: Weights) -> list[str]:
    return [
        str(python.with_name("vllm")), "serve", str(weights.transformers),
        "--served-model-name", MODEL, "--dtype", DTYPE, "--max-num-seqs", "16",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip


def _environment(python: Path) -> dict[str, str]:
    """One thread on each core; the number of threads that others are told is not for it."""
    openmp = python.parents[1] / "lib" / "libiomp5.so"
    cores = sorted(os.sched_getaffinity(0))
    ours = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "PYTHONPATH")}
    return ours | {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **({"LD_PRELOAD": str(openmp)} if openmp.is_file() else {}),  # as its documents advise
    }


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx.get(f"{url}/health").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.5)
        else:
            return
    raise Absent(f"it did not start: {log.read_text().strip().rpartition(chr(10))[2]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        if number is signal.SIGTERM:
            _patiently(process)
    process.wait()


def _patiently(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        return
