"""What must hold, and what may not have become worse since the references were recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .measure import Result
from .seams import SeamLoss
from .systems import COMPARED

REFERENCES = Path(__file__).with_name("references.json")
PEER = "faster-whisper"

PEER_SLACK = 0.2
"""Points of word error rate by which the peer's better mode may be better."""

MAX_SEAM_LOSS = 1.0
"""Points."""

SLACK = {"errors": 0.3, "words": 2, "decoded": 0.01, "latency_ratio": 0.3}
"""What a row may be worse than its reference: points, or so many words or letters where that is more; share of the
audio; part of the ratio itself.

Float arithmetic differs between machines and between companies of a batch, by a word or two of a thousand, and what is
tried again at another temperature by as many letters; ratios to the peer were seen to vary by a fifth on a machine that
others use."""


def broken(results: Sequence[Result], seams: Mapping[str, SeamLoss], long: set[str]) -> Iterator[str]:
    """A line for each gate that does not hold."""
    for result in results:
        if result.system == PEER or result.set not in long:
            continue
        peers = [peer.errors for peer in results if peer.system == PEER and peer.set == result.set]
        if peers and result.policy == COMPARED and result.errors > min(peers) + PEER_SLACK:
            yield f"{result.key}: {result.errors:.2f} % errors, {PEER} has {min(peers):.2f} %"
        if result.states and result.unreported:
            yield f"{result.key}: {result.unreported} runs of missing words in no span the ledger reports"
    for name, seam in seams.items():
        if seam.loss > MAX_SEAM_LOSS:
            yield f"{name}: errors near cuts {seam.near:.2f} %, elsewhere {seam.elsewhere:.2f} %"


def regressions(results: Sequence[Result]) -> Iterator[str]:
    """A line for each number that is worse than its reference and its slack."""
    references = json.loads(REFERENCES.read_text())["rows"] if REFERENCES.exists() else {}
    for key, row in rows(results).items():
        recorded = references.get(key, {})
        if recorded.get("words") != row["words"]:  # only part of the set was measured
            continue
        allowed = {
            "errors": max(SLACK["errors"], 100 * SLACK["words"] / row["words"]),
            "decoded": SLACK["decoded"],
            "latency_ratio": SLACK["latency_ratio"] * recorded.get("latency_ratio", 0.0),
        }
        for name in allowed.keys() & recorded.keys() & row.keys():
            value, reference, slack = row[name], recorded[name], allowed[name]
            worse = reference - value if name == "decoded" else value - reference
            if worse > slack:
                yield f"{key}: {name} is {value:.3f}, was {reference:.3f}, may be worse by {slack:.3f}"


def rows(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """The numbers that are watched, of our rows.

    The latency ratio is to the peer's sequential mode in the same run, so that the machine does not count.
    """
    peers = {result.set: result.seconds for result in results if result.key.endswith(f"{PEER} / sequential")}
    watched = {}
    for result in results:
        if result.system != PEER:
            watched[result.key] = (
                {"words": result.words, "errors": result.errors}
                | ({"decoded": result.decoded} if result.states else {})
                | ({"latency_ratio": result.seconds / peers[result.set]} if result.set in peers else {})
            )
    return watched


def record(files: Sequence[Path]) -> None:
    """Make references of the results of several runs: the median of each number."""
    runs: list[dict[str, Any]] = [json.loads(file.read_text())["watched"] for file in files]
    kept = {
        key: {name: round(median(run[key][name] for run in runs), 4) for name in row} for key, row in runs[0].items()
    }
    REFERENCES.write_text(json.dumps({"runs": len(runs), "slack": SLACK, "rows": kept}, indent=1) + "\n")
