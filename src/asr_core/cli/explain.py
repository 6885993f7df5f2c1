"""``asr-core explain``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict

from asr_core.cli._limits import upload_options
from asr_core.cli._options import Override, cut_options, overrides_of, table

if TYPE_CHECKING:
    from asr_core.errors import InvalidRequestError
    from asr_core.model_hooks import ModelHooks
    from asr_core.plan import Number, Plan, PlannedClip, Planner
    from asr_core.plugins import Plugins
    from asr_core.types import CheckpointModel, UploadLimits

NUMBERS = ("LAYER", "NUMBER", "VALUE", "OWNER", "CHANGED BY", "SOURCE")
CLIPS = ("START", "END", "SECONDS", "", "ENDS THERE BECAUSE OF")
REASONS = {
    "end": "the end of the audio",
    "silence": "silence, which is skipped, on one side",
    "pause": "a pause",
    "quietest": "no pause: this is the quietest place near the limit",
    "limit": "the limit on one clip",
    "tail": "the next clip, which would have been too short",
}


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", required=True, metavar="MODEL", help="A name from `asr-core models`, a directory or a hub id.")
@click.option("--checkpoint", metavar="REF", help="A directory or hub id to read in place of what MODEL stands for.")
@click.option("--duration", type=float, metavar="SECONDS", help="How much audio to think of, in place of FILE.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@cut_options
@upload_options
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    file: Path | None,
    model: str,
    checkpoint: str | None,
    duration: float | None,
    as_json: bool,
    vad: str | None,
    chunk: Sequence[Override],
    limits: UploadLimits,
) -> None:
    """Show where audio would be cut for a model, and every number that decides it; nothing is transcribed."""
    if (file is None) == (duration is None):
        raise click.UsageError("give a FILE or a --duration, and not both")
    from asr_core.errors import InvalidRequestError

    (overrides,) = overrides_of([model], chunk)
    planner = _planner(ctx.obj.plugins(), model, checkpoint, overrides, vad, limits)
    try:
        plan = _of_file(planner, file) if file is not None else planner.of_duration(duration or 0.0)
    except InvalidRequestError as error:
        _refuse(planner, error, as_json)
        ctx.exit(1)
    click.echo(json.dumps(plan.as_dict()) if as_json else _as_text(plan))


def _planner(
    plugins: Plugins,
    model: str,
    checkpoint: str | None,
    overrides: dict[str, Any],
    vad: str | None,
    limits: UploadLimits,
) -> Planner:
    from asr_core.loading import DETECTOR, open_detector, served_policy
    from asr_core.longform import Splitting
    from asr_core.plan import Planner

    named, hooks = _named(plugins, model, checkpoint)
    native, policy = hooks.native_limit(named), served_policy(hooks, named, overrides)
    detector = open_detector(plugins.detector(vad or DETECTOR))
    return Planner.of(hooks, named, Splitting(native, policy, detector, vad is not None), limits)


def _named(plugins: Plugins, model: str, checkpoint: str | None) -> tuple[CheckpointModel, ModelHooks]:
    # What the plugin knows by heart need not be fetched.
    if checkpoint is None and (described := plugins.described(model)) is not None:
        return described
    from asr_core.types import CheckpointModel

    found, card, hooks = plugins.resolve(model, checkpoint)
    return CheckpointModel(card, found), hooks


def _of_file(planner: Planner, file: Path) -> Plan:
    from asr_core import audio

    return planner.of_sound(audio.load(file, planner.splitting.native.sample_rate, planner.limits))


def _refuse(planner: Planner, error: InvalidRequestError, as_json: bool) -> None:
    knob = error.setting and f"--{error.setting.replace('_', '-')}"
    if as_json:
        refused = {"message": error.message, "layer": error.layer, "knob": knob}
        numbers = [asdict(number) for number in planner.numbers]
        click.echo(json.dumps({"model": planner.model, "numbers": numbers, "refused": refused}))
    else:
        click.echo(table(NUMBERS, map(_number, planner.numbers)))
        click.echo(f"\nrefused by {error.layer}: {error.message}{f' (set by {knob})' if knob else ''}")


def _as_text(plan: Plan) -> str:
    cuts = "" if plan.exact else "; nobody has heard it, so these are the latest places, and nothing is skipped"
    heard = f"{plan.seconds:.2f} s of audio, {sum(clip.decoded for clip in plan.clips)} clips to decode{cuts}"
    return "\n".join([table(NUMBERS, map(_number, plan.numbers)), "", heard, table(CLIPS, map(_clip, plan.clips))])


def _number(number: Number) -> tuple[str, ...]:
    value = "none" if number.value is None else str(number.value).lower()
    source = f"{number.source} ({number.note})" if number.note else number.source
    return (number.layer, number.name, value, number.owner, number.knob or "none: a fact of the checkpoint", source)


def _clip(clip: PlannedClip) -> tuple[str, ...]:
    spans = (clip.start, clip.end, clip.end - clip.start)
    return (*(f"{seconds:.2f}" for seconds in spans), "decode" if clip.decoded else "skip", REASONS[clip.reason])
