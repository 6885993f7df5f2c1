"""``asr-core serve``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from asr_core.cli._options import Discovery, engine_options

if TYPE_CHECKING:
    from asr_core.loading import EngineOptions


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
@engine_options
@click.pass_obj
def serve(
    discovery: Discovery,
    models: tuple[str, ...],
    checkpoints: tuple[str, ...],
    host: str,
    port: int,
    drain_seconds: float,
    engine: EngineOptions,
) -> None:
    """Serve models over HTTP, the way the openai client expects."""
    if checkpoints and len(checkpoints) != len(models):
        raise click.UsageError(f"{len(checkpoints)} checkpoints for {len(models)} models: give one each, or none")
    from asr_core.serve import ServerOptions, run

    logging.getLogger("asr_core.access").setLevel(logging.INFO)
    wanted = list(zip(models, checkpoints or [None] * len(models), strict=True))
    run(discovery.plugins(), wanted, engine, ServerOptions(host, port, drain_seconds))
