"""Sources in C beside the modules here, compiled when first asked for, where there is a compiler; nothing needs one."""

from __future__ import annotations

import ctypes
import logging
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

OPTIONS = ("-O3", "-ffast-math", "-march=native", "-fopenmp", "-fPIC", "-c")
"""Threads are those of torch, whose library has the functions that ``-fopenmp`` calls: linking another library of them
would set its own threads against them."""

PATIENCE = 10.0
"""Seconds that a compiler may take; it takes less than one."""

_logger = logging.getLogger(__name__)


@cache
def compiled(name: str, width: int) -> ctypes.CDLL | None:
    """The library of ``name``.c for rows of ``width``, built in a folder of its own that is gone again afterwards.

    None where that fails, for whatever reason: that is told to the log, and what is slower has to do.
    """
    source = Path(__file__).with_name(f"{name}.c")
    try:
        with TemporaryDirectory(prefix="asr-core-", ignore_cleanup_errors=True) as folder:
            built, library = Path(folder, "built.o"), Path(folder, "built.so")
            _run("cc", *OPTIONS, f"-DWIDTH={width}", str(source), "-o", str(built))
            # By itself, as a linker told of -ffast-math would have the whole process round tiny numbers to zero.
            _run("cc", "-shared", str(built), "-o", str(library), "-lm")
            return ctypes.CDLL(str(library))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        _logger.warning("%s was not compiled, so torch computes it, slower: %s", source.name, reason)
        return None


def _run(*command: str) -> None:
    subprocess.run(  # noqa: S603
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=PATIENCE,
    )
