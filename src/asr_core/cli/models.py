"""``asr-core models``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from asr_core.cli._options import Discovery, table

if TYPE_CHECKING:
    from asr_core.plugins import Plugins
    from asr_core.types import Capabilities, ModelCard

HEADER = ("NAME", "CLIP", "LANGUAGES", "CAN", "LICENSE", "PLUGIN", "CHECKPOINT")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs; it tells all.")
@click.pass_obj
def models(discovery: Discovery, as_json: bool) -> None:
    """List the models that installed plugins bring, and what they can do as they are published."""
    found = discovery.plugins()
    rows = [_row(found, card) for card in found.models()]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
    elif rows:
        click.echo(table(HEADER, map(_cells, rows)))
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
        **_facts(found, card),
    }


def _facts(found: Plugins, card: ModelCard) -> dict[str, Any]:
    from asr_core.errors import PluginError

    facts: dict[str, Any] = {"clip_seconds": None, "languages": [], "can": []}
    try:
        published = found.published(card)
    except PluginError as error:
        return {**facts, "error": error.message}
    if published is not None:
        capabilities, limit = published
        languages, can = list(capabilities.languages), _abilities(capabilities)
        facts = {"clip_seconds": limit.seconds, "languages": languages, "can": can}
    return facts


def _abilities(capabilities: Capabilities) -> list[str]:
    """What a caller may ask for beyond a transcription, in words."""
    said = {
        "translate": "translate" in capabilities.tasks,
        "detect the language": capabilities.detects_language,
        "candidate languages": capabilities.candidates,
        "segment times": capabilities.segment_times,
        "word times": capabilities.word_times,
        "speakers": capabilities.speakers,
        f"prompt ({(capabilities.prompt or '').replace('_', ' ')})": capabilities.prompt is not None,
        "keywords": capabilities.keywords,
        "temperature": capabilities.temperature,
        **dict.fromkeys((option.name for option in capabilities.options), True),
    }
    return [what for what, is_so in said.items() if is_so]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    cells = (
        row["name"],
        f"{row['clip_seconds']:g} s" if row["clip_seconds"] else "",
        str(len(row["languages"])) if len(row["languages"]) > 3 else ", ".join(row["languages"]),
        f"error: {row['error']}" if "error" in row else ", ".join(row["can"]),
        row["license"],
        row["plugin"],
        row["checkpoint"],
    )
    return tuple(cell or "-" for cell in cells)
