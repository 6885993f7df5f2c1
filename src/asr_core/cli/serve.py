"""``asr-core serve``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asr_core.cli._limits import limit_options
from asr_core.cli._options import Discovery, engine_options

if TYPE_CHECKING:
    from asr_core.loading import EngineOptions
    from asr_core.types import ServerLimits


@click.command()
@click.option(
    "--model", "models", multiple=True, required=True, metavar="MODEL", help="What to serve; repeat for more."
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="REF",
    help="A directory or hub id to read in place of what MODEL stands for; one for each --model, in order.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option(
    "--drain-seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Time to finish when told to stop.",
)
@click.option(
    "--idle-timeout",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds a connection may take for the head of a request before it is closed.",
)
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Serve only who shows one of these keys: one a line, # begins a comment.",
)
@click.option(
    "--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]), help="Of every log line."
)
@limit_options
@engine_options
@click.pass_obj
def serve(
    discovery: Discovery,
    models: tuple[str, ...],
    checkpoints: tuple[str, ...],
    host: str,
    port: int,
    drain_seconds: float,
    idle_timeout: float,
    api_key_file: Path | None,
    log_format: str,
    limits: ServerLimits,
    engines: Sequence[EngineOptions],
) -> None:
    """Serve models over HTTP, the way the openai client expects."""
    if checkpoints and len(checkpoints) != len(models):
        raise click.UsageError(f"{len(checkpoints)} checkpoints for {len(models)} models: give one each, or none")
    from asr_core.serve import ServerOptions, read_keys, run
    from asr_core.serve.logs import use_json

    if log_format == "json":
        use_json()
    logging.getLogger("asr_core.access").setLevel(logging.INFO)
    wanted = list(zip(models, checkpoints or [None] * len(models), engines, strict=True))
    keys = None if api_key_file is None else read_keys(api_key_file)
    options = ServerOptions(host, port, drain_seconds, idle_timeout, limits, keys)
    run(discovery.plugins(), wanted, options)
