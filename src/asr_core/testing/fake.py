"""A tiny deterministic model that hears :mod:`asr_core.testing.tones`, as a plugin like any other.

It shows every behaviour the core has to cope with, on demand, through its declared option ``behaviour``; its tokens are
single bytes, so characters are split over tokens all the time. Register it under the entry-point group ``asr_core`` as
``asr_core.testing.fake``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from asr_core import ModelCard, hookimpl
from asr_core.testing import tones
from asr_core.types import (
    AudioSpan,
    Capabilities,
    Checkpoint,
    ChunkPolicy,
    Clip,
    End,
    Feature,
    NativeLimit,
    OptionSpec,
    Piece,
    PreparedClip,
    Speaker,
    Start,
    StreamingPolicy,
    Tokens,
    TranscriptionRequest,
    Weights,
)

if TYPE_CHECKING:
    import torch

    from asr_core.engines.torch import Row

CARD = ModelCard(
    "fake", ("fake-tones",), ("testing/fake",), "reads text from tones, for tests", "Apache-2.0", config="tones"
)
SECONDS = 60.0

STOP = 256
BEHAVIOURS = ("plain", "early_end", "loop", "slow", "raise", "speakers")
FIRST_BEHAVIOUR = 257
"""Prompt token of BEHAVIOURS[0]; the others follow."""

FIRST_SPEAKER = 270
FIRST_TIME = 300
"""Token of 0 ms; each further one is a frame of 10 ms later."""

VOCABULARY = FIRST_TIME + round(SECONDS * tones.RATE / tones.FRAME) + 1

TURN = ord("/")
"""The character at which ``speakers`` gives the next speaker the floor."""

EARLY = 0.6
"""Share of the text after which ``early_end`` stops."""

SLOW_SECONDS = 0.05
"""What ``slow`` takes for each token."""


@hookimpl
def register_models(register: Callable[[ModelCard], None]) -> None:
    """One model."""
    register(CARD)


@hookimpl
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    """It has no files."""
    known = (CARD.name, *CARD.aliases, *CARD.checkpoints)
    return Checkpoint(CARD.name, ref, path=None, config=CARD.config) if ref in known else None


@hookimpl
def capabilities() -> Capabilities:
    """Segment times and speakers come with the behaviour ``speakers``."""
    behaviour = OptionSpec("behaviour", "string", "what to show", choices=BEHAVIOURS)
    return Capabilities(
        segment_times=True,
        speakers=True,
        options=(behaviour,),
        requires={"transcribe": frozenset({"cross_attention"})},
    )


@hookimpl
def native_limit() -> NativeLimit:
    """As long as there are time tokens."""
    return NativeLimit(tones.RATE, SECONDS, sources={"seconds": "the number of time tokens"})


@hookimpl
def chunk_policy() -> ChunkPolicy:
    """Its speech has always more than twelve bytes a second, of which ``early_end`` says three in five."""
    return ChunkPolicy(least_rate=11.0)


@hookimpl
def streaming_policy() -> StreamingPolicy:
    """What it has said it never takes back."""
    return StreamingPolicy(commit="token")


@hookimpl
def prepare_frontend() -> str:
    """Nothing to load."""
    return "tones"


@hookimpl
def prepare_clip(clip: Clip, request: TranscriptionRequest) -> PreparedClip:
    """The behaviour is the whole prompt."""
    samples = clip.end_sample - clip.start_sample
    behaviour = BEHAVIOURS.index(request.options.get("behaviour", "plain"))
    rows = tones.frames(samples)
    return PreparedClip(
        spans=(AudioSpan(0, samples, tokens=rows),),
        prompt=((FIRST_BEHAVIOUR + behaviour,),),
        cross=0,
        stop=frozenset({STOP}),
        budget=rows + 16,
    )


@hookimpl
def extract_features(clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    """Tone amplitudes of shape [frames, 32]."""
    heard = [tones.tone_amplitudes(clip.samples[span.start_sample : span.end_sample]) for span in spans]
    return [Feature(amplitudes, len(amplitudes)) for amplitudes in heard]


@hookimpl
def decode_tokens(tokens: Tokens, state: Any, final: bool) -> tuple[Piece, Any]:
    """Bytes as UTF-8, speaker and time tokens as marks; ``state`` tells whether a segment is open."""
    raw = bytes(token for token in tokens if token < STOP)
    marks: list[Start | End | Speaker] = []
    for token in tokens:
        if token >= FIRST_TIME:
            ms = 10 * (token - FIRST_TIME)
            marks.append(End(ms) if state else Start(ms))
            state = not state
        elif token >= FIRST_SPEAKER:
            marks.append(Speaker("ABCD"[token - FIRST_SPEAKER]))
    text = raw.decode(errors="replace")
    return ((text, *marks) if text else tuple(marks)), state


@hookimpl
def load_weights() -> Weights:
    """A decoder that looks its answer up."""
    return Weights(encoder="tones", decoder=ScriptedDecoder())


@hookimpl
def encode_batch(features: Sequence[Feature]) -> list[torch.Tensor]:
    """The byte of each frame, shape [frames, 1]."""
    import torch

    return [torch.from_numpy(tones.read_frames(feature.data))[:, None] for feature in features]


@frozen
class Heard:
    """A byte and the frames it sounds in."""

    byte: int
    start: int
    end: int


class ScriptedDecoder:
    """Speaks the decoder protocol; the whole output of a slot is written when its prompt arrives."""

    def __init__(self) -> None:
        self._heard: dict[int, list[Heard]] = {}
        self._scripts: dict[int, list[int]] = {}

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """Collapse runs of equal frames to bytes."""
        self._heard[slot] = list(_collapse(encoded[:, 0].tolist()))

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """All the weight on the next token of the script."""
        import torch

        logits = torch.full((len(rows), VOCABULARY), -100.0)
        for number, row in enumerate(rows):
            logits[number, self._next(row)] = 0.0
        return logits

    def free(self, slot: int) -> None:
        """Forget the script."""
        self._heard.pop(slot, None)
        self._scripts.pop(slot, None)

    def _next(self, row: Row) -> int:
        if row.start == 0:
            behaviour = BEHAVIOURS[int(row.parts[0][0]) - FIRST_BEHAVIOUR]
            self._scripts[row.slot] = _SCRIPTS[behaviour](self._heard[row.slot])
        script = self._scripts[row.slot]
        # The prompt is one token, so the first output token follows position 0.
        return _play(script[row.start] if row.start < len(script) else STOP)


RAISE, SLOW = -1, -1000
"""In a script, a token that cannot be decoded, and what is added to one that takes its time."""


def _play(token: int) -> int:
    if token == RAISE:
        raise RuntimeError("the behaviour 'raise' was asked for")
    if token < RAISE:
        time.sleep(SLOW_SECONDS)
        token -= SLOW
    return token


def _collapse(read: Sequence[int]) -> Iterator[Heard]:
    start = 0
    for frame, byte in enumerate([*read, tones.SILENT]):
        if frame and byte != read[frame - 1]:
            if read[frame - 1] != tones.SILENT:
                yield Heard(read[frame - 1], start, frame)
            start = frame


def _plain(heard: Sequence[Heard]) -> list[int]:
    return [item.byte for item in heard]


def _early_end(heard: Sequence[Heard]) -> list[int]:
    return _plain(heard[: int(EARLY * len(heard))])


def _loop(heard: Sequence[Heard]) -> list[int]:
    """Far more of the first bytes than any budget allows."""
    repeated = cycle(_plain(heard[:8]))
    return [next(repeated) for _ in range(VOCABULARY)] if heard else []


def _slow(heard: Sequence[Heard]) -> list[int]:
    return [SLOW + byte for byte in _plain(heard)]


def _raise(heard: Sequence[Heard]) -> list[int]:
    return [*_plain(heard[:3]), RAISE]


def _speakers(heard: Sequence[Heard]) -> list[int]:
    script: list[int] = []
    turns = np.split(np.array(heard, dtype=object), [i for i, item in enumerate(heard) if item.byte == TURN])
    for number, turn in enumerate(turns):
        said = [item for item in turn if item.byte != TURN]
        if said:
            # Marks change no text, so the space between two turns has to be said.
            script += [ord(" ")] if script else []
            script += [FIRST_SPEAKER + number % 2, FIRST_TIME + said[0].start, *_plain(said), FIRST_TIME + said[-1].end]
    return script


_SCRIPTS: dict[str, Callable[[Sequence[Heard]], list[int]]] = {
    "plain": _plain,
    "early_end": _early_end,
    "loop": _loop,
    "slow": _slow,
    "raise": _raise,
    "speakers": _speakers,
}
