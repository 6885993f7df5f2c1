"""Where nobody speaks for so long that it need not be decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from attrs import frozen

from asr_core.longform._frames import Frames, runs
from asr_core.types import ChunkPolicy, ServerVad

SPEECH = 0.5
"""Score from which a frame is speech, unless the caller says otherwise."""
LEAST_SILENCE_S = 0.1
"""However short a pause the caller lets end a clip: closed lips last as long, inside of words."""


@frozen
class Gap:
    """Samples to skip; an empty one is a place to cut."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """In samples."""
        return self.end - self.start


def silences(frames: Frames, policy: ChunkPolicy, trusted: bool) -> list[Gap]:
    """Stretches of ``skip_s`` without a sound or, ``trusted``, without speech, less ``pad_s`` next to what is there.

    What is there and is shorter than ``min_tail_s`` even so gets more of them.
    """
    rate, count = frames.waveform.rate, len(frames.waveform.samples)
    pad, shortest = round(policy.pad_s * rate), round(policy.min_tail_s * rate)
    gaps = _idle(frames, policy.silence_floor, SPEECH if trusted else None, policy.skip_s * rate)
    padded = [gap for gap in (_padded(gap, frames, pad, pad) for gap in gaps) if gap.length > 0]
    return [gap for gap in _shortened(padded, count, shortest) if gap.length > 0]


def pauses(frames: Frames, policy: ChunkPolicy, vad: ServerVad) -> list[Gap]:
    """What ``vad`` asks to skip; a pause that its paddings fill is an empty gap."""
    rate, count = frames.waveform.rate, len(frames.waveform.samples)
    before, after = vad.prefix_padding_ms * rate // 1000, round(policy.pad_s * rate)
    shortest = max(vad.silence_duration_ms / 1000, LEAST_SILENCE_S) * rate
    gaps = [
        _padded(gap, frames, min(after, gap.length // 2), before)
        for gap in _idle(frames, policy.silence_floor, vad.threshold, shortest)
    ]
    least = round(policy.min_tail_s * rate)
    joined = _joined(gaps, count, least, policy.skip_s * rate)
    return [gap for gap in _shortened(joined, count, least) if gap.start < count and gap.end > 0]


def _idle(frames: Frames, floor: float, threshold: float | None, shortest: float) -> Iterator[Gap]:
    """Runs of frames without sound or, given a ``threshold``, below it, to the sample where sound ends and begins."""
    idle = frames.peaks < floor
    if threshold is not None:
        idle |= frames.scores < threshold
    edges = frames.edges
    for first, end in runs(idle):
        # At either end the frame next to it can add less than itself; most pauses are too short to look.
        if edges[min(end + 1, len(edges) - 1)] - edges[max(first - 1, 0)] >= shortest:
            gap = _exact(frames, first, end, floor)
            if gap.length >= shortest:
                yield gap


def _exact(frames: Frames, first: int, end: int, floor: float) -> Gap:
    samples, edges = frames.waveform.samples, frames.edges
    start, stop = int(edges[first]), int(edges[end])
    if first > 0:
        start = int(edges[first - 1] + 1 + np.flatnonzero(np.abs(samples[edges[first - 1] : start]) >= floor)[-1])
    if end + 1 < len(edges):
        stop += int(np.flatnonzero(np.abs(samples[stop : edges[end + 1]]) >= floor)[0])
    return Gap(start, stop)


def _padded(gap: Gap, frames: Frames, after: int, before: int) -> Gap:
    """Without ``after`` the sound that ends there and ``before`` the sound that begins, if there is any."""
    start = gap.start + after if gap.start > 0 else 0
    end = gap.end - before if gap.end < len(frames.waveform.samples) else gap.end
    return Gap(start, max(start, end))


def _joined(gaps: Sequence[Gap], count: int, shortest: int, long: float) -> list[Gap]:
    """Without the gaps beside too short a clip, unless both are ``long``: those cannot be many."""
    kept: list[Gap] = []
    for gap in (*gaps, Gap(count, count)):
        if 0 < gap.start - (kept[-1].end if kept else 0) < shortest:
            if gap.end < count and gap.length < long:
                continue
            if kept and kept[-1].start > 0 and kept[-1].length < long:
                kept.pop()
        kept.append(gap)
    return kept[:-1]


def _shortened(gaps: Sequence[Gap], count: int, shortest: int) -> list[Gap]:
    """Less of the gap before too short a clip and, where that is not enough, of the one behind it."""
    kept = [Gap(0, 0)]
    for gap in (*gaps, Gap(count, count)):
        if 0 < gap.start - kept[-1].end < shortest:
            kept[-1] = Gap(kept[-1].start, max(kept[-1].start, gap.start - shortest))
            gap = Gap(min(max(gap.start, kept[-1].end + shortest), gap.end), gap.end)
        kept.append(gap)
    return kept
