"""What several commands share: finding plugins, choosing where a model runs, printing tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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


@frozen
class Override:
    """One --chunk: a ``field`` of the chunk policy of ``model``, called as --model calls it, or of all for None."""

    model: str | None
    field: str
    value: float | str | None

    @classmethod
    def read(cls, text: str) -> Override:
        """What ``[MODEL:]FIELD=VALUE`` says.

        Raises:
            click.BadParameter: there is no value.
        """
        name, value = read_setting(text)
        model, _, field = name.rpartition(":")
        return cls(model or None, field, value)


def read_setting(text: str) -> tuple[str, float | str | None]:
    """Name and value of ``NAME=VALUE``; read from its end, as there may be a path in a name.

    Raises:
        click.BadParameter: there is no value.
    """
    name, equals, value = text.rpartition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is no NAME=VALUE")
    return name, _value(value)


_WORDS = {"true": True, "false": False, "none": None}


def _value(text: str) -> float | str | None:
    """A number, or what a word stands for; what is neither is left for the policy to refuse."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def overrides_of(models: Sequence[str], given: Sequence[Override]) -> list[dict[str, Any]]:
    """For each of ``models`` the fields that are overridden, the last word on each counting.

    Raises:
        click.UsageError: a model is named that is none of them.
    """
    for override in given:
        if override.model not in (None, *models):
            raise click.UsageError(f"--chunk names the model {override.model!r}; there is {', '.join(models)}")
    return [{one.field: one.value for one in given if one.model in (None, model)} for model in models]


def cut_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --vad and --chunk to a command, which gets them as ``vad`` and ``chunk``."""
    for option in (
        click.option(
            "--chunk",
            multiple=True,
            metavar="[MODEL:]FIELD=VALUE",
            callback=lambda context, option, given: tuple(map(Override.read, given)),
            help="A field of the policy by which sound is cut (`asr-core explain` lists them); repeat for more.",
        ),
        click.option("--vad", metavar="NAME", help="What tells speech in long audio; see `asr-core plugins list`."),
    ):
        command = option(command)
    return command


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what chooses where a model runs and how its sound is cut.

    A command of one ``model`` gets an ``engine``, one of several ``models`` gets ``engines``, one for each.
    """

    @cut_options
    @click.option("--aligner", metavar="NAME", help="What times words; see `asr-core plugins list`.")
    @click.option("--dtype", default="auto", show_default=True, help="float32, bfloat16, float16, int8 or auto.")
    @click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ... or auto.")
    @click.option("--engine", default="torch", show_default=True, help="See `asr-core plugins list`.")
    @wraps(command)
    def with_engine(*args: Any, chunk: Sequence[Override], **options: Any) -> None:
        from asr_core.loading import EngineOptions

        chosen = EngineOptions(*(options.pop(name) for name in ("engine", "device", "dtype", "aligner", "vad")))
        models = options.get("models") or (options["model"],)
        engines = [evolve(chosen, chunk=fields) for fields in overrides_of(models, chunk)]
        which: dict[str, Any] = {"engines": engines} if "models" in options else {"engine": engines[0]}
        command(*args, **which, **options)

    return with_engine


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
