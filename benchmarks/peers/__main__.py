"""Everybody in turn, round after round, on the same weights and the same audio.

Run by ``nox -s bench``. Prints a table and writes all of it as JSON. Exits with 1 when a request failed, asr-core is
not 1.5 times as fast as vLLM everywhere, or its errors on the short clips are more than a word above transformers' in
float32. Whom or what it could not measure or judge, it names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from asr_core.bench.drive import Round
from asr_core.bench.machine import machine, versions
from asr_core.bench.score import Scorer

from .libraries import LIBRARIES
from .result import FASTEST, OURS, Place, Result, broken, not_judged, table
from .sets import LANGUAGE, Set, long, short
from .systems import Absent, Start, System, Turn, asr_core, in_process, pause, resume
from .vllm import vllm
from .weights import Weights

DISTRIBUTIONS = ("asr-whisper", "openai-whisper", "faster-whisper", "ctranslate2")

NORMALISER = "whisper.normalizers:EnglishTextNormalizer"
"""OpenAI's, by which the model's makers counted."""

WARM_UP = 4
"""Requests at the beginning of a turn that do not count: everybody has stood still, or has not begun."""


def starts(python: Path) -> dict[str, Start]:
    """Everybody by name, in the order of the table; ``python`` is of vLLM's environment."""
    return {
        OURS: asr_core,
        **{f"{OURS} {dtype}": partial(_forced, dtype) for dtype in ("float32", "bfloat16")},
        FASTEST: partial(vllm, python),
        **{name: partial(in_process, name) for name in LIBRARIES},
    }


def _forced(dtype: str, directory: Path, weights: Weights) -> AbstractContextManager[System]:
    return asr_core(directory, weights, "--dtype", dtype)


def chosen(names: Sequence[str], only: str | None) -> list[str]:
    """Those whose name begins with one of ``only``'s."""
    wanted = tuple(name.strip() for name in only.split(",")) if only else ("",)
    return [name for name in names if name.startswith(wanted)]


def open_all(wanted: Mapping[str, Start], work: Path, stack: ExitStack) -> dict[str, System]:
    """Start everybody and let them stand; who is absent is named."""
    systems: dict[str, System] = {}
    for name, start in wanted.items():
        directory = work / name.replace(" ", "-")
        directory.mkdir()
        try:
            systems[name] = stack.enter_context(start(directory, Weights(work / "weights")))
        except Absent as absent:
            print(f"left out: {name}: {absent}", flush=True)
        else:
            pause(systems[name])
    return systems


def play(system: System, sets: Sequence[Set], seed: int) -> Iterator[tuple[Place, Round]]:
    """One turn: a warm-up, then every set at every number of callers."""
    resume(system)
    system.play(Turn(sets[0], WARM_UP, WARM_UP, seed, 0))
    first = WARM_UP
    for of in sets:
        for callers in of.callers:
            yield (of.name, callers), system.play(Turn(of, of.requests, callers, seed, first))
            first += of.requests
    pause(system)


def measure(systems: Mapping[str, System], sets: Sequence[Set], rounds: int, scorer: Scorer) -> list[Result]:
    """Round after round, everybody in each, with the same noise for all."""
    played: dict[str, dict[Place, list[Round]]] = {name: defaultdict(list) for name in systems}
    for seed in range(rounds):
        for name, system in systems.items():
            for place, round_ in play(system, sets, seed):
                played[name][place].append(round_)
                print(f"round {seed + 1}, {name}, {place[0]} at {place[1]}: {round_.seconds:.1f} s", flush=True)
    return [Result.of(name, played[name], system.memory(), scorer) for name, system in systems.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="systems by the beginning of their names, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=30, help="short ones, of each round at each number of callers")
    parser.add_argument(
        "--vllm", type=Path, default=Path(".vllm/bin/python"), help="python of an environment with vLLM"
    )
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "asr-core-peers.json")
    options = parser.parse_args()
    everybody = starts(options.vllm)
    wanted = {name: everybody[name] for name in chosen(list(everybody), options.only)}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        work, scorer = Path(directory), Scorer(NORMALISER)
        sets = (short(options.requests), long(work))
        # In a process of its own, whose copies of the weights are gone before anybody is measured.
        command = [sys.executable, "-m", "benchmarks.peers.weights", str(work / "weights")]
        subprocess.run(command, check=True)  # noqa: S603
        systems = open_all(wanted, work, stack)
        results = measure(systems, sets, options.rounds, scorer)
    words = sum(scorer.rate(sound.line.reference, "", LANGUAGE).units for sound in sets[0].sounds)
    wrong = list(broken(results, words))
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(DISTRIBUTIONS),
        "rounds": options.rounds,
        "wrong": wrong,
    }
    options.out.write_text(json.dumps(about | {"rows": [result.as_dict() for result in results]}, indent=1) + "\n")
    print("", table(results), "", json.dumps(about["machine"]), json.dumps(about["versions"]), sep="\n")
    print(*not_judged(results), *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
