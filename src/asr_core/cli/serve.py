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
    discovery: Discovery, models: tuple[str, ...], host: str, port: int, drain_seconds: float, engine: EngineOptions
) -> None:
    """Serve models over HTTP, the way the openai client expects."""
    from asr_core.serve import ServerOptions, run

    logging.getLogger("asr_core.access").setLevel(logging.INFO)
    run(discovery.plugins(), models, engine, ServerOptions(host, port, drain_seconds))
