"""How sound would be cut for a model, and every number that decides it; none of its weights are needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from attrs import asdict, evolve, fields, frozen

from asr_core.errors import AudioTooLongError, AudioTooShortError
from asr_core.longform import Splitting, split
from asr_core.model_hooks import ModelHooks
from asr_core.types import CheckpointModel, ChunkPolicy, NativeLimit, ServerVad, UploadLimits, Waveform

CORE = "asr-core"
OPERATOR = "operator"

Layer = Literal["native_limit", "chunk_policy", "upload_limits"]


@frozen
class Number:
    """A number that decides what is heard at once.

    ``owner`` is a distribution or ``operator``, ``source`` where it is given: ``module:name``, or the flag. ``note``
    says more of that. ``knob`` is the flag that changes it, None where none does: a fact of the checkpoint.
    """

    name: str
    value: float | None
    layer: Layer
    owner: str
    source: str
    note: str = ""
    knob: str | None = None


@frozen
class PlannedClip:
    """A stretch of sound, in seconds, that is decoded or skipped, and why it ends there."""

    start: float
    end: float
    decoded: bool
    reason: str


@frozen
class Plan:
    """What becomes of ``seconds`` of sound sent to ``model``.

    Without the sound itself it is not ``exact``: each clip ends where it does at the latest, and nothing is skipped.
    """

    model: str
    numbers: tuple[Number, ...]
    seconds: float
    exact: bool
    clips: tuple[PlannedClip, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON holds it."""
        return asdict(self) | {"clips": [{**asdict(clip), "seconds": clip.end - clip.start} for clip in self.clips]}


@frozen(eq=False)
class Planner:
    """Tells how sound is cut for one model, under the limits of one endpoint."""

    model: str
    numbers: tuple[Number, ...]
    splitting: Splitting
    limits: UploadLimits

    @classmethod
    def of(cls, hooks: ModelHooks, model: CheckpointModel, splitting: Splitting, limits: UploadLimits) -> Planner:
        """A planner for ``model``, of which ``hooks`` speak, cut by ``splitting``."""
        native = _native(hooks, splitting.native)
        policy = _policy(hooks, hooks.chunk_policy(model), splitting.policy)
        numbers = (*native, *policy, *_of_a_clip([*native, *policy]), *_upload(limits))
        return cls(model.card.name, numbers, splitting, limits)

    def of_sound(self, waveform: Waveform, server_vad: ServerVad | None = None) -> Plan:
        """Where exactly the cuts fall in ``waveform``; takes as long as looking at all of it."""
        clips = tuple(
            PlannedClip(part.start_sample / waveform.rate, part.end_sample / waveform.rate, part.speech, part.reason)
            for part in split(waveform, self.splitting, server_vad)
        )
        return Plan(self.model, self.numbers, waveform.duration, exact=True, clips=clips)

    def of_duration(self, seconds: float) -> Plan:
        """Where the cuts fall at the latest in so much sound.

        Raises:
            AudioTooLongError, AudioTooShortError: the endpoint does not take it.
        """
        _check(seconds, self.limits)
        clips = tuple(_latest(seconds, self.splitting.native, self.splitting.policy))
        return Plan(self.model, self.numbers, seconds, exact=False, clips=clips)


def _native(hooks: ModelHooks, limit: NativeLimit) -> list[Number]:
    source = hooks.source("native_limit") or ""
    names = [field.name for field in fields(NativeLimit) if field.name != "sources"]
    return [
        Number(name, getattr(limit, name), "native_limit", hooks.owner, source, limit.sources.get(name, ""))
        for name in names
    ]


def _policy(hooks: ModelHooks, own: ChunkPolicy, served: ChunkPolicy) -> list[Number]:
    source = hooks.source("chunk_policy")
    numbers = _told("chunk_policy", own, hooks.owner if source else CORE, source or "asr_core.types:ChunkPolicy")
    return [_chosen(number, served, f"--chunk {number.name}=VALUE") for number in numbers]


def _upload(limits: UploadLimits) -> list[Number]:
    numbers = _told("upload_limits", UploadLimits(), CORE, "asr_core.types:UploadLimits")
    return [_chosen(number, limits, f"--{number.name.replace('_', '-')}") for number in numbers]


def _told(layer: Layer, values: ChunkPolicy | UploadLimits, owner: str, source: str) -> list[Number]:
    return [Number(name, value, layer, owner, source) for name, value in asdict(values).items()]


def _chosen(number: Number, served: ChunkPolicy | UploadLimits, knob: str) -> Number:
    """``number`` as it is served, which is the operator's where it is another."""
    value = getattr(served, number.name)
    if value == number.value:
        return evolve(number, knob=knob)
    note = f"in place of {number.value}, {number.source}"
    return evolve(number, value=value, owner=OPERATOR, source=knob.partition(" ")[0], note=note, knob=knob)


def _of_a_clip(numbers: Sequence[Number]) -> Iterator[Number]:
    """What follows of them for one clip, in the name of the one that decides."""
    known = {number.name: number for number in numbers}
    target, seconds, rate = (known[name] for name in ("target_s", "seconds", "audio_tokens_per_second"))
    longest = seconds if target.value is None else target
    yield evolve(longest, name="clip_seconds", note=f"{longest.name} decides", knob=target.knob)
    if longest.value is not None and rate.value is not None:
        tokens, note = longest.value * rate.value, f"{longest.name} x {rate.name}"
        yield evolve(longest, name="clip_audio_tokens", value=tokens, note=note, knob=target.knob)


def _check(seconds: float, limits: UploadLimits) -> None:
    # What is no number at all is not below the limit either.
    if not seconds <= limits.max_seconds:
        raise AudioTooLongError(
            f"The audio is longer than the {limits.max_seconds:g} s this endpoint takes.",
            param="duration",
            setting="max_seconds",
        )
    if seconds < limits.min_seconds:
        raise AudioTooShortError(
            f"The audio lasts {seconds:.3g} s, and {limits.min_seconds:g} s is the least taken.",
            param="duration",
            setting="min_seconds",
        )


def _latest(seconds: float, native: NativeLimit, policy: ChunkPolicy) -> Iterator[PlannedClip]:
    longest = min((cap for cap in (policy.target_s, native.seconds) if cap is not None), default=math.inf)
    overlap = min(policy.overlap_s, longest / 4)
    own = longest - 2 * overlap
    # The first clip and the last overlap on one side only.
    count = max(1, math.ceil((seconds - 2 * overlap) / own))
    ends = [overlap + own * number for number in range(1, count)]
    reasons = ["limit"] * len(ends)
    tail = min(policy.min_tail_s, own)
    if ends and seconds - ends[-1] < tail:
        ends[-1], reasons[-1] = seconds - tail, "tail"
    for start, end, reason in zip([0.0, *ends], [*ends, seconds], [*reasons, "end"], strict=True):
        yield PlannedClip(start, end, True, reason)
