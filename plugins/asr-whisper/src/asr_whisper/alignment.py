"""From cross attention to the moment each token was said: dynamic time warping, as the original aligns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asr_core.types import Alignment, ClipOutput, PreparedClip, Tokens
from asr_whisper.frontend import Frontend

FloatArray = npt.NDArray[np.floating[Any]]

FILTER = 7
"""Frames of the median filter: the original's ``medfilt_width``."""


def prepare_alignment(frontend: Frontend, output: ClipOutput, prepared: PreparedClip) -> Alignment | None:
    """The text once more, without timestamps, which draw attention to themselves; cut where the context ends."""
    text = text_tokens(frontend, output)
    if not text:
        return None
    special = frontend.special
    prompt = (*_task(frontend, prepared), special.no_timestamps, *text, special.eot)
    return Alignment(prompt[: frontend.config.dims.text_context], frontend.config.alignment_heads)


def text_tokens(frontend: Frontend, output: ClipOutput) -> Tokens:
    """The output without timestamps and other special tokens."""
    return tuple(token for token in output.tokens if token < frontend.special.eot)


def token_frames(
    frontend: Frontend, prepared: PreparedClip, attention: npt.NDArray[np.float32], frames: int
) -> npt.NDArray[np.int64]:
    """The encoder row, of the first ``frames``, at which each text token and then the end of text begins.

    ``attention`` answers :func:`prepare_alignment`, so the last token or two of a full context are missing.
    """
    # A token is heard while the one before it is read: from <|notimestamps|> on, and before <|endoftext|>.
    return entered(-_followed(attention[..., :frames])[len(_task(frontend, prepared)) : -1])


def entered(costs: FloatArray) -> npt.NDArray[np.int64]:
    """The column at which the cheapest path through ``costs`` [rows, columns] enters each row.

    A path leads from the first cell to the last by steps right, down or both. A row is one pass: to walk right from
    where the row was entered costs a difference of sums, so the best entry is a running minimum.
    """
    rows, columns = costs.shape
    sums = np.cumsum(costs, axis=1, dtype=np.float64)
    entries = np.zeros((rows, columns), np.int64)
    slanted = np.zeros((rows, columns), bool)
    above = sums[0]
    for row in range(1, rows):
        aslant = np.concatenate(([np.inf], above[:-1]))
        slanted[row] = aslant < above
        entry = np.minimum(aslant, above) - sums[row] + costs[row]
        best = np.minimum.accumulate(entry)
        entries[row] = np.maximum.accumulate(np.where(entry == best, np.arange(columns), 0))
        above = best + sums[row]
    return _walk_back(entries, slanted)


def _walk_back(entries: npt.NDArray[np.int64], slanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    rows, columns = entries.shape
    path, column = np.zeros(rows, np.int64), columns - 1
    for row in range(rows - 1, 0, -1):
        path[row] = entries[row, column]
        column = path[row] - slanted[row, path[row]]
    return path


def _task(frontend: Frontend, prepared: PreparedClip) -> Tokens:
    """What begins the output: <|startoftranscript|>, and language and task where the model has them."""
    prompt = [token for part in prepared.prompt if isinstance(part, tuple) for token in part]
    start = prompt.index(frontend.special.sot)
    return tuple(token for token in prompt[start:] if token != frontend.special.no_timestamps)


def _followed(products: FloatArray) -> FloatArray:
    """How much each position looks at each frame, on average over heads; products of shape [heads, rows, frames]."""
    followed: FloatArray = np.mean([_smooth(_surprise(head)) for head in products], axis=0)
    return followed


def _surprise(products: FloatArray) -> FloatArray:
    """Weights of one head in standard deviations from the frame's mean.

    Heads look at some frames from everywhere: only what differs between positions tells when a token was said.
    """
    weights = np.exp(products - products.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    weights -= weights.mean(0)
    surprise: FloatArray = weights / np.maximum(weights.std(0), np.finfo(np.float32).tiny)
    return surprise


def _smooth(weights: FloatArray) -> FloatArray:
    """The median of FILTER frames around each, mirrored at both ends; of shape [rows, frames]."""
    half, frames = FILTER // 2, weights.shape[-1]
    if frames <= half:
        return weights
    padded = np.pad(weights, ((0, 0), (half, half)), mode="reflect")
    window = [padded[:, shift : shift + frames] for shift in range(FILTER)]
    # Each pass lifts the largest that is left: sorting so many sevens takes three times as long.
    for last in range(FILTER - 1, half - 1, -1):
        for place in range(last):
            one, other = window[place], window[place + 1]
            window[place], window[place + 1] = np.minimum(one, other), np.maximum(one, other)
    return window[half]
