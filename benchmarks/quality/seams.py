"""What cutting costs: errors among the words near a cut against all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from .score import Word

NEAR_S = 1.0


@frozen
class SeamLoss:
    """Errors per hundred words near cuts and elsewhere, and where 95 % of resampled differences lie."""

    words: int
    near: float
    elsewhere: float
    low: float
    high: float

    @property
    def loss(self) -> float:
        """Points by which it is worse near a cut."""
        return self.near - self.elsewhere


def seam_loss(runs: Sequence[tuple[Sequence[Word], Sequence[float]]], draws: int = 2000) -> SeamLoss:
    """Of several runs over the same sentences: words with their errors, and the cuts in seconds.

    The bootstrap draws sentences, each with its words in all runs, as errors in a sentence go together.
    """
    counts = np.zeros((1 + max(word.sentence for words, _ in runs for word in words), 4))
    for words, cuts in runs:
        for word in words:
            near = any(word.start < cut + NEAR_S and word.end > cut - NEAR_S for cut in cuts)
            counts[word.sentence] += (1, word.errors, 0, 0) if near else (0, 0, 1, word.errors)
    order = np.random.default_rng(11)
    drawn = counts[order.integers(len(counts), size=(draws, len(counts)))].sum(axis=1)
    near, elsewhere = _rates(counts.sum(axis=0))
    low, high = np.nanpercentile(np.subtract(*_rates(drawn.T)), [2.5, 97.5])
    return SeamLoss(int(counts[:, 0].sum()), float(near), float(elsewhere), float(low), float(high))


def _rates(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of shape [4, ...]: words and errors near, words and errors elsewhere."""
    return 100 * counts[1] / np.maximum(counts[0], 1), 100 * counts[3] / np.maximum(counts[2], 1)
