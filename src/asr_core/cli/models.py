"""``asr-core models``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from asr_core.cli._options import Discovery, table

if TYPE_CHECKING:
    from asr_core.plugins import Plugins
    from asr_core.types import ModelCard


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_obj
def models(discovery: Discovery, as_json: bool) -> None:
    """List the models that installed plugins bring."""
    found = discovery.plugins()
    rows = [_row(found, card) for card in found.models()]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
    elif rows:
        click.echo(table(("NAME", "ALIASES", "PLUGIN", "CHECKPOINT", "LICENSE", "SUMMARY"), map(_cells, rows)))
    else:
        click.echo("No plugin with a model is installed; `asr-core plugins list` shows what is.")


def _row(found: Plugins, card: ModelCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "aliases": list(card.aliases),
        "plugin": found.owner(card.name).distribution,
        "checkpoint": card.checkpoints[0] if card.checkpoints else None,
        "license": card.license,
        "summary": card.summary,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    cells = {**row, "aliases": ", ".join(row["aliases"])}
    return tuple(cell or "-" for cell in cells.values())
