"""The sound of an open container, frame by frame, with the places where it is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from asr_core.audio._clock import Clock
from asr_core.audio._container import typed_errors
from asr_core.audio._mix import check_header, mono
from asr_core.errors import CorruptAudioError
from asr_core.types import Samples

# A demuxer that fails may find its way again behind the damage, or fail at the same place for ever.
_MAX_DEMUX_FAILURES = 32


@frozen(eq=False)
class Block:
    """Mono float32 ``samples`` of shape [n] at ``rate`` Hz, as the source has them."""

    samples: Samples
    rate: int


@frozen
class Damage:
    """Something between two blocks that could not be decoded; ``reason`` is one sentence."""

    reason: str


def decode(container: Any, stream: Any) -> Iterator[Block | Damage]:
    """Blocks and damages in the order of time; CorruptAudioError only for absurd rates and channel counts."""
    clock = Clock(container, stream)
    # Plain wav packets are cut at the end of the file by design, which FFmpeg marks as damage.
    marks_count = container.format.name != "wav"
    for packet in _packets(container, stream):
        if isinstance(packet, Damage):
            yield packet
            continue
        if marks_count and packet.is_corrupt:
            yield Damage("The file ends, or is damaged, inside a packet of sound.")
        yield from _sound(stream, packet, clock)
    if shortfall := clock.shortfall():
        yield Damage(shortfall)


def _sound(stream: Any, packet: Any, clock: Clock) -> Iterator[Block | Damage]:
    try:
        with typed_errors("A packet of sound could not be decoded"):
            frames = stream.codec_context.decode(packet)
    except CorruptAudioError:
        # FFmpeg's own words for it are often those of another error.
        yield Damage("A packet of sound could not be decoded.")
        return
    for frame in frames:
        if not frame.samples:
            continue
        check_header(frame.sample_rate, frame.layout.nb_channels)
        if gap := clock.gap(frame):
            yield Damage(gap)
        yield Block(mono(frame), frame.sample_rate)


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    for _ in range(_MAX_DEMUX_FAILURES):
        try:
            with typed_errors("The container is damaged"):
                yield from container.demux(stream)
            return
        except CorruptAudioError as error:
            yield Damage(error.message)
