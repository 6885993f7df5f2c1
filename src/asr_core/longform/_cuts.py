"""Where a stretch that is too long is cut."""

from __future__ import annotations

from typing import Literal

import numpy as np
from attrs import frozen

from asr_core.longform._frames import Frames, runs
from asr_core.types import Samples

Reason = Literal["end", "silence", "pause", "quietest", "limit", "tail"]
PAUSE_S = 0.2
"""The least that is taken for a pause between words: within them, lips close for up to 0.1 s."""
REST_S = 0.3
"""Nobody speaks for so long: behind it a sentence begins, and so should a subtitle."""
SIMILAR = 0.5
"""Of pauses of at least this part of the longest the last is taken: clips are fewer, and hear more of what is near."""
HOPS_PER_SECOND = 100
QUIET_HOPS = 10


@frozen
class Cutter:
    """Cuts what is longer than ``cap`` in the last ``search`` before that; ``tail`` is the least that may be left.

    Beside a cut, ``overlap`` of the other clip counts towards the cap where it is heard. All in samples. A frame is
    speech where its score reaches ``threshold``. What is ``timed`` begins in a rest if it can.
    """

    frames: Frames
    cap: int
    overlap: int
    search: int
    tail: int
    threshold: float
    timed: bool

    def ends(self, start: int, end: int) -> list[tuple[int, Reason]]:
        """Where the clips of a stretch end, and why but for the last: for its end there is a reason outside."""
        ends: list[tuple[int, Reason]] = []
        room = self.cap
        while end - start > room:
            start, reason = self._cut(start, end, room - self.overlap)
            ends.append((start, reason))
            room = self.cap - self.before(start)
        return ends

    def before(self, cut: int) -> int:
        """How much of what lies before it the clip behind a cut hears: of ``timed`` ones none where there is a rest."""
        if not self.timed:
            return self.overlap
        half = round(REST_S * self.frames.waveform.rate / 2)
        first, end = np.searchsorted(self.frames.edges, (cut - half, cut + half))
        rest = self.frames.scores[first:end] < self.threshold
        return 0 if len(rest) and rest.all() else self.overlap

    def _cut(self, start: int, end: int, most: int) -> tuple[int, Reason]:
        """Where a clip of at most that many samples ends."""
        # No further back than half a clip, so that clips cannot become many.
        limit = start + most
        cut, reason = self._best(limit - min(self.search, most // 2), limit)
        if end - cut >= self.tail:
            return cut, reason
        limit = end - self.tail
        return self._best(max(start + 1, end - self.cap + self.overlap, limit - self.search), limit)[0], "tail"

    def _best(self, first: int, limit: int) -> tuple[int, Reason]:
        if (pause := self._pause(first, limit)) is not None:
            return pause, "pause"
        waveform = self.frames.waveform
        if (quiet := quietest(waveform.samples[first:limit], waveform.rate)) is not None:
            return first + quiet, "quietest"
        return limit, "limit"

    def _pause(self, first: int, limit: int) -> int | None:
        """The middle of the last pause in there that is not much shorter than the longest."""
        edges = self.frames.edges
        begin, end = np.searchsorted(edges, first), np.searchsorted(edges, limit, side="right") - 1
        speechless = self.frames.scores[begin:end] < self.threshold
        found = [(edges[begin + a], edges[begin + b]) for a, b in runs(speechless)]
        long = [(b - a, (a + b) // 2) for a, b in found if b - a >= PAUSE_S * self.frames.waveform.rate]
        least = SIMILAR * max((length for length, _ in long), default=0)
        return next((int(middle) for length, middle in reversed(long) if length >= least), None)


def quietest(samples: Samples, rate: int) -> int | None:
    """The middle of the 100 ms with the least power, to 10 ms, the last of equals; None if there are not 100 ms."""
    hop = max(1, rate // HOPS_PER_SECOND)
    hops = samples[: len(samples) // hop * hop].reshape(-1, hop)
    if len(hops) < QUIET_HOPS:
        return None
    energies = np.einsum("ij,ij->i", hops, hops, dtype=np.float64)  # in buffers: nothing is copied as a whole
    sums = np.lib.stride_tricks.sliding_window_view(energies, QUIET_HOPS).sum(axis=1)
    return (len(sums) - 1 - int(np.argmin(sums[::-1])) + QUIET_HOPS // 2) * hop
