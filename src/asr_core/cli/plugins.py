"""``asr-core plugins list``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from attrs import asdict

from asr_core.cli._options import Discovery, table

if TYPE_CHECKING:
    from asr_core.plugins import PluginRecord


@click.group()
def plugins() -> None:
    """Look at what is installed."""


@plugins.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List plugins, what they bring, and what is wrong with them."""
    discovery: Discovery = ctx.obj
    found = discovery.lenient().plugins()
    if as_json:
        click.echo(json.dumps([asdict(record) for record in found.records], ensure_ascii=False))
    else:
        click.echo(
            table(
                ("PLUGIN", "DISTRIBUTION", "VERSION", "MODELS", "ENGINES", "ALIGNERS", "DETECTORS", "HOOKS"),
                map(_cells, found.records),
            )
        )
        for line in (*(line for record in found.records for line in _remarks(record)), *found.warnings):
            click.echo(line)
    faulty = any(record.error or record.conflicts for record in found.records) or found.warnings
    if discovery.strict and faulty:
        ctx.exit(1)


def _cells(record: PluginRecord) -> tuple[str, ...]:
    name = f"! {record.name}" if record.error else record.name
    lists = (record.models, record.engines, record.aligners, record.detectors, record.hooks)
    return (name, record.distribution, record.version, *(", ".join(items) or "-" for items in lists))


def _remarks(record: PluginRecord) -> list[str]:
    """What a person should know beyond the table, a paragraph each."""
    who = f"{record.name} ({record.distribution})"
    remarks = [f"\n! {who} is not used: {record.error}"] if record.error else []
    if record.error and record.traceback:
        remarks.append("  " + record.traceback.strip().replace("\n", "\n  "))
    if record.blocked:
        remarks.append(f"\n- {who} is blocked: {record.blocked}")
    return remarks + [f"\n! {who}: {text}" for text in (*record.conflicts, *record.warnings)]
