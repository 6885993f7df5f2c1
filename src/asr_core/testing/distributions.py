"""Throwaway distributions on disk, found by a process the way it finds what pip installed."""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from asr_core.hookspecs import PROJECT


def write_distribution(
    directory: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, str], version: str = "0.1"
) -> None:
    """Write modules and a ``.dist-info`` into ``directory``, ready to be put on ``sys.path`` or ``PYTHONPATH``.

    ``modules`` maps dotted names to sources, which are dedented; missing parent packages are made up empty.
    ``entry_points`` maps names in the group ``asr_core`` to ``module`` or ``module:object``.
    """
    files = {_path(module, modules): textwrap.dedent(source) for module, source in _with_parents(modules).items()}
    info = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    lines = "".join(f"{entry} = {target}\n" for entry, target in entry_points.items())
    files[f"{info}/entry_points.txt"] = f"[{PROJECT}]\n{lines}"
    files[f"{info}/RECORD"] = "".join(map(_record_line, files, files.values())) + f"{info}/RECORD,,\n"
    for path, content in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode())


def _with_parents(modules: Mapping[str, str]) -> dict[str, str]:
    parents = {module[: dot.start()]: "" for module in modules for dot in re.finditer(r"\.", module)}
    return parents | dict(modules)


def _path(module: str, modules: Mapping[str, str]) -> str:
    stem = module.replace(".", "/")
    is_package = any(other.startswith(f"{module}.") for other in modules)
    return f"{stem}/__init__.py" if is_package else f"{stem}.py"


def _record_line(path: str, content: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(content.encode())}\n"
