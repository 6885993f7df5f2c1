"""All but the recording itself that makes a transcript what it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict

if TYPE_CHECKING:
    from asr_core.loading import EngineOptions
    from asr_core.plugins import Plugins

CORE = "asr-core"


def settings(
    plugins: Plugins, model: str, checkpoint: str | None, engine: EngineOptions, **fields: Any
) -> Mapping[str, Any]:
    """Model, options, ``fields`` of the request and versions, in JSON's types; equal for equal results.

    The device is left out, so that a job may be resumed on another; a dtype counts where somebody asked for one.

    Raises:
        AsrError: the model cannot be found, or ``engine.chunk`` does not fit it.
    """
    from asr_core.loading import served_policy
    from asr_core.types import CheckpointModel

    found, card, hooks = plugins.resolve(model, checkpoint)
    options = asdict(engine, filter=lambda attribute, _: attribute.name not in ("device", "chunk"))
    # As it is served: 30 and 30.0 are one number, and the plugin's own need not be said.
    policy = served_policy(hooks, CheckpointModel(card, found), engine.chunk)
    return {
        "model": card.name,
        "checkpoint": found.reference,
        "checkpoint_files": _files(Path(found.reference)),
        "versions": _versions(plugins, {card.name, engine.engine, engine.aligner, engine.vad}),
        "options": {**options, "chunk": asdict(policy)},
        "fields": fields,
    }


def _files(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of what is at a path, as a directory may hold a model that was trained further."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def _versions(plugins: Plugins, names: set[str | None]) -> dict[str, str]:
    """Of the core, and of the distributions that bring something of these ``names``."""
    return {
        record.distribution: record.version
        for record in plugins.records
        if record.distribution == CORE or names & {*record.models, *record.engines, *record.aligners, *record.detectors}
    }
