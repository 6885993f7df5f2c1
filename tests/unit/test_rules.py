"""Tokens that rules forbid, row by row."""

from __future__ import annotations

import pytest
import torch

from asr_core.engines.torch._sampling import apply_rules
from asr_core.types import Suppress


def forbidden(rule: Suppress, seen: list[list[int]]) -> list[list[int]]:
    """The ids of each row that were taken away."""
    logits = torch.randn(len(seen), 7)
    ruled = apply_rules([rule], seen, logits.clone())
    assert torch.equal(ruled[ruled.isfinite()], logits[ruled.isfinite()])
    return [row.isinf().nonzero()[:, 0].tolist() for row in ruled]


@pytest.mark.parametrize("ids", [(), (3,), (5, 0, 5, 6)])
def test_tokens_are_forbidden_at_every_time_or_as_the_first(ids: tuple[int, ...]) -> None:
    for _ in range(2):  # from what is kept of the ids, too
        assert forbidden(Suppress(ids), [[], [3], []]) == [sorted(set(ids))] * 3
        assert forbidden(Suppress(ids, at_begin=True), [[], [3], []]) == [sorted(set(ids)), [], sorted(set(ids))]


def test_an_id_that_is_not_there_is_an_error() -> None:
    with pytest.raises(IndexError):
        forbidden(Suppress((7,)), [[1]])
