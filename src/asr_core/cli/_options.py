"""What several commands share: finding plugins, choosing where a model runs, printing tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen

if TYPE_CHECKING:
    from asr_core.plugins import Plugins


@frozen
class Discovery:
    """The global options about plugins; None leaves a question to the environment."""

    allow: Sequence[str] | None = None
    block: Sequence[str] | None = None
    strict: bool | None = None

    def plugins(self) -> Plugins:
        """Look for the installed plugins now, which ``--help`` does not need."""
        from asr_core.plugins import Plugins

        return Plugins.discover(self.allow, self.block, self.strict)

    def lenient(self) -> Discovery:
        """The same, but faults are only recorded."""
        return evolve(self, strict=False)


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --engine, --device, --dtype and --aligner to a command, which gets them as one ``engine``."""

    @click.option("--engine", default="torch", show_default=True, help="See `asr-core plugins list`.")
    @click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ... or auto.")
    @click.option("--dtype", default="auto", show_default=True, help="float32, bfloat16, float16 or auto.")
    @click.option("--aligner", metavar="NAME", help="What times words; see `asr-core plugins list`.")
    @wraps(command)
    def with_engine(*args: Any, engine: str, device: str, dtype: str, aligner: str | None, **options: Any) -> None:
        from asr_core.loading import EngineOptions

        command(*args, engine=EngineOptions(engine, device, dtype, aligner), **options)

    return with_engine


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
