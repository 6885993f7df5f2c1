"""``asr-core transcribe``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asr_core.cli._batch import Batch
from asr_core.cli._options import Discovery, engine_options, read_setting
from asr_core.cli._output import check_output, open_output
from asr_core.cli._search import Search
from asr_core.cli._settings import settings
from asr_core.cli._tally import Tally
from asr_core.formats import FORMATS, TIMED

if TYPE_CHECKING:
    from asr_core.loading import EngineOptions

INTERRUPTED = 130
"""What shells expect of a program that Ctrl-C ended."""


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--model", required=True, metavar="MODEL", help="A name from `asr-core models`, a directory or a hub id.")
@click.option("--checkpoint", metavar="REF", help="A directory or hub id to read in place of what MODEL stands for.")
@click.option("-f", "--format", "format_", default="text", show_default=True, type=click.Choice(list(FORMATS)))
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a file per recording there, and leave out what an earlier run has finished.",
)
@click.option("--language", metavar="CODE", help="What is spoken; left out, the model finds out if it can.")
@click.option("--task", default="transcribe", show_default=True, type=click.Choice(["transcribe", "translate"]))
@click.option("--prompt", metavar="TEXT", help="What it means is up to the model.")
@click.option("--temperature", type=float, help="0 to 1.")
@click.option(
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda context, option, given: dict(map(read_setting, given)),
    help="One of the model's own fields, which `asr-core models` lists; repeat.",
)
@engine_options
@click.pass_context
def transcribe(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    model: str,
    checkpoint: str | None,
    format_: str,
    output: Path | None,
    engine: EngineOptions,
    options: dict[str, Any],
    **fields: Any,
) -> None:
    """Transcribe each PATH in order: a file, or a directory with all that is audio in it.

    One that fails does not stop the others.
    """
    if engine.aligner is not None and format_ != "json":
        raise click.UsageError("--aligner times words, and only -f json has a place for them")
    search = Search.through(paths, output)
    check_output(format_, output, paths, search.recordings)
    discovery: Discovery = ctx.obj
    plugins = discovery.plugins()
    made_with = settings(plugins, model, checkpoint, engine, format=format_, **fields, **options) if output else {}
    times = ("segment",) if format_ in TIMED else ("word",) if engine.aligner else ()
    tally, status = Tally(search.failures, len(search.others)), 0
    try:
        with open_output(format_, output, len(paths) > 1, made_with) as writer:
            if wanted := tally.outstanding(writer, search.recordings):
                from asr_core.api import Transcriber

                with Transcriber(plugins, model, engine, checkpoint) as transcriber:
                    transcriber.check(times=times, options=options, **fields)
                    click.echo(transcriber.served.placement, err=True)
                    call = partial(transcriber.transcribe, times=times, **fields, **options)
                    Batch(call, writer, tally).run(wanted)
    except KeyboardInterrupt:
        status = INTERRUPTED
    for line in tally.lines():
        click.echo(line, err=True)
    ctx.exit(status or int(bool(tally.failures)))
