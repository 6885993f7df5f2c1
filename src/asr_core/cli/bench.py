"""``asr-core bench``."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from asr_core.cli._names import reason
from asr_core.cli._options import Discovery, engine_options, table

if TYPE_CHECKING:
    from asr_core.bench.manifest import Line
    from asr_core.bench.measure import Plan
    from asr_core.bench.report import Report
    from asr_core.bench.score import Scorer
    from asr_core.bench.subject import Subject

OF_A_SERVER = ("stream", "pid", "api_key_env")
OF_A_MODEL = ("checkpoint", "engine", "device", "dtype", "aligner", "vad", "chunk")
"""Options that say how a model is loaded here, which a server did in its own way."""

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _numbers(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isascii() and number.isdigit() and int(number) for number in numbers):
        raise click.BadParameter(f"{text!r} is no list of numbers from 1 on, as 1,4,16")
    return tuple(dict.fromkeys(map(int, numbers)))


@click.command()
@click.option("--manifest", required=True, type=FILE, help="A JSON object a line: path, language or null, reference.")
@click.option("--model", required=True, metavar="MODEL", help="What to load here, or its name on the server.")
@click.option("--checkpoint", metavar="REF", help="A directory or hub id to read in place of what MODEL stands for.")
@click.option("--url", metavar="URL", help="A running server, as http://127.0.0.1:8000; else MODEL is loaded here.")
@click.option("--stream", is_flag=True, help="Ask the server for a stream, and time its first delta.")
@click.option("--pid", type=click.IntRange(1), help="The server's process on this machine, for its memory.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the server's key.")
@click.option("--concurrency", default="1,4,16", show_default=True, callback=_numbers, help="Requests at once.")
@click.option("--requests", type=click.IntRange(1), help="Of a round; else whole passes, 4 per caller and more.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1), help="Rounds; their medians count.")
@click.option("--seed", type=click.IntRange(0), help="Of the noise that makes audio unique; else another each time.")
@click.option("--normaliser", default="plain", show_default=True, help="Of texts before scoring, else MODULE:NAME.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report there too.")
@click.option("--baseline", type=FILE, help="A report that --json wrote.")
@click.option("--min-throughput-ratio", type=click.FloatRange(0), help="Least multiple of the baseline's requests/s.")
@click.option("--max-error-increase", type=click.FloatRange(0), help="Most points of errors above the baseline's.")
@engine_options
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    manifest: Path,
    model: str,
    url: str | None,
    concurrency: tuple[int, ...],
    requests: int | None,
    repeats: int,
    seed: int | None,
    normaliser: str,
    out: Path | None,
    baseline: Path | None,
    min_throughput_ratio: float | None,
    max_error_increase: float | None,
    **how: Any,
) -> None:
    """Measure speed, errors and memory of MODEL together, in this process or on a server.

    Exits with 1 if a request failed, or what is asked beside the baseline does not hold.
    """
    limits = (min_throughput_ratio, max_error_increase)
    _check(ctx, url, baseline, limits)
    from asr_core.bench.baseline import Baseline
    from asr_core.bench.manifest import read_manifest
    from asr_core.bench.measure import Plan
    from asr_core.bench.score import Scorer

    plan = Plan(concurrency, repeats, secrets.randbits(32) if seed is None else seed, requests)
    before = Baseline.read(baseline, concurrency, normaliser) if baseline else None
    scorer, lines = Scorer(normaliser), read_manifest(manifest)
    report = _measured(ctx.obj, lines, model, url, plan, scorer, normaliser=normaliser, **how)
    _show(report, out)
    wrong = [*report.failed(), *(before.broken(report.levels, *limits) if before else ())]
    for line in wrong:
        click.echo(line, err=True)
    ctx.exit(int(bool(wrong)))


def _check(ctx: click.Context, url: str | None, baseline: Path | None, limits: Sequence[float | None]) -> None:
    """Refuse options that would change nothing."""
    given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    for name in OF_A_MODEL if url else OF_A_SERVER:
        if name in given:
            whose = "how a model is loaded here, not a server" if url else "a server, and needs --url"
            raise click.UsageError(f"--{name.replace('_', '-')} is about {whose}")
    asked = any(limit is not None for limit in limits)
    if asked != (baseline is not None):
        raise click.UsageError("--baseline goes with --min-throughput-ratio or --max-error-increase")


def _measured(
    discovery: Discovery,
    lines: Sequence[Line],
    model: str,
    url: str | None,
    plan: Plan,
    scorer: Scorer,
    normaliser: str,
    **how: Any,
) -> Report:
    from asr_core.bench.measure import measure
    from asr_core.bench.report import Report
    from asr_core.bench.sounds import open_sounds

    sounds = open_sounds(lines)
    with _subject(discovery, model, url, **how) as subject:
        levels = measure(subject.ask, sounds, plan, scorer, lambda text: click.echo(text, err=True))
        about = {"model": model, **subject.about, **dict(_circumstances(subject, plan))}
        seconds = round(sum(sound.seconds for sound in sounds), 2)
        audio = {"sounds": len(sounds), "audio_seconds": seconds, "normaliser": normaliser}
        return Report(about | audio, subject.memory(), levels)


def _subject(discovery: Discovery, model: str, url: str | None, **how: Any) -> AbstractContextManager[Subject]:
    from asr_core.bench.subject import loaded, served

    if url is None:
        return loaded(discovery.plugins(), model, how["engine"], how["checkpoint"])
    variable = how["api_key_env"]
    if variable is not None and variable not in os.environ:
        raise click.UsageError(f"--api-key-env: there is no environment variable {variable}")
    key = os.environ[variable] if variable is not None else None
    return served(url, model, stream=how["stream"], key=key, pid=how["pid"])


def _circumstances(subject: Subject, plan: Plan) -> Iterator[tuple[str, Any]]:
    from asr_core.bench.machine import machine, versions

    yield "date", datetime.now(UTC).isoformat(timespec="seconds")
    yield "machine", machine()
    yield "versions", versions(subject.distributions)
    yield "seed", plan.seed
    yield "repeats", plan.repeats


def _show(report: Report, out: Path | None) -> None:
    from asr_core.bench.report import HEADER

    click.echo(table(HEADER, report.rows))
    click.echo("\n".join(["", *report.lines()]))
    if out is not None:
        try:
            out.write_text(json.dumps(report.as_dict(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise click.FileError(str(out), reason(error)) from error
