"""``asr-core transcribe``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asr_core.cli._batch import Batch
from asr_core.cli._options import Discovery, engine_options
from asr_core.cli._output import Output, check_output
from asr_core.formats import FORMATS, TIMED

if TYPE_CHECKING:
    from asr_core.loading import EngineOptions


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--model", required=True, metavar="MODEL", help="A name from `asr-core models`, a directory or a hub id.")
@click.option("--checkpoint", metavar="REF", help="A directory or hub id to read in place of what MODEL stands for.")
@click.option("-f", "--format", "format_", default="text", show_default=True, type=click.Choice(list(FORMATS)))
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="Write a file per FILE there.")
@click.option("--language", metavar="CODE", help="What is spoken; left out, the model finds out if it can.")
@click.option("--task", default="transcribe", show_default=True, type=click.Choice(["transcribe", "translate"]))
@click.option("--prompt", metavar="TEXT", help="What it means is up to the model.")
@click.option("--temperature", type=float, help="0 to 1.")
@engine_options
@click.pass_context
def transcribe(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    model: str,
    checkpoint: str | None,
    format_: str,
    output: Path | None,
    engine: EngineOptions,
    **fields: Any,
) -> None:
    """Transcribe FILEs in order; one that fails does not stop the others."""
    if engine.aligner is not None and format_ != "json":
        raise click.UsageError("--aligner times words, and only -f json has a place for them")
    discovery: Discovery = ctx.obj
    writer = Output(format_, output, several=len(files) > 1)
    check_output(writer, files)
    from asr_core.api import Transcriber

    with Transcriber(discovery.plugins(), model, engine, checkpoint) as transcriber:
        click.echo(transcriber.served.placement, err=True)
        times = ("segment",) if format_ in TIMED else ("word",) if engine.aligner else ()
        batch = Batch(lambda file: transcriber.transcribe(file, times=times, **fields), writer)
        batch.run(files)
    if batch.failed:
        ctx.exit(1)
