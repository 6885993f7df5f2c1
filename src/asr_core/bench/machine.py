"""What it was measured on and with."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

MATRIX = (
    "amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2",
    "sme", "sve", "bf16", "i8mm", "asimddp",
)  # fmt: skip
"""Instructions that decide how fast a CPU multiplies matrices, as Linux calls them."""


def machine() -> dict[str, object]:
    """Processor, cores this process may use, and instructions for matrices."""
    facts = _cpuinfo()
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    return {
        "cpu": facts.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "instructions": [name for name in MATRIX if name in flags],
        "system": platform.platform(),
    }


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^([^\t:]+)\t*: (.+)$", text.partition("\n\n")[0], re.MULTILINE))


def versions(distributions: Iterable[str] = ()) -> dict[str, str]:
    """Of Python, of the core, of what computes, and of ``distributions``; those that are installed here."""
    found = {"python": platform.python_version()}
    for name in ("asr-core", *distributions, "torch", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
