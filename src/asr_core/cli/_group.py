"""The group of all commands, its options, and what an error looks like."""

from __future__ import annotations

import logging
from typing import Any

import click

from asr_core.cli._heap import keep_heap
from asr_core.cli._options import Discovery
from asr_core.cli.bench import bench
from asr_core.cli.explain import explain
from asr_core.cli.models import models
from asr_core.cli.plugins import plugins
from asr_core.cli.serve import serve
from asr_core.cli.transcribe import transcribe
from asr_core.errors import AsrError

logger = logging.getLogger(__name__)


class _Group(click.Group):
    """Commands whose errors are one line, not a traceback; ``-vv`` shows that too."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AsrError as error:
            logger.debug("where it came from", exc_info=error)
            click.echo(f"error: {error.message}", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--plugins-allow", multiple=True, metavar="NAME", help="Load only these plugins; repeat, or use commas.")
@click.option("--plugins-block", multiple=True, metavar="NAME", help="Do not load these plugins.")
@click.option("--strict-plugins", is_flag=True, help="Stop if anything is wrong with any plugin.")
@click.option("-v", "--verbose", count=True, help="Log what happens; twice for everything.")
@click.version_option(package_name="asr-core")
@click.pass_context
def main(
    ctx: click.Context,
    plugins_allow: tuple[str, ...],
    plugins_block: tuple[str, ...],
    strict_plugins: bool,
    verbose: int,
) -> None:
    """Speech recognition with models that are plugins."""
    keep_heap()
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("asr_core").setLevel(level)
    ctx.obj = Discovery(_names(plugins_allow), _names(plugins_block), strict_plugins or None)


def _names(given: tuple[str, ...]) -> list[str] | None:
    """Names out of repeated options and comma lists; None, so that the environment decides, without any."""
    return [name.strip() for part in given for name in part.split(",") if name.strip()] or None


for _command in (transcribe, serve, explain, bench, models, plugins):
    main.add_command(_command)
