"""What the cross attention of one forward sees: products of queries and keys, for the rows and heads that ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import field, frozen

from asr_core.engines.torch._batch import Row

Place = tuple[int, int, int]
"""Slot, layer, head."""


@frozen(eq=False)
class Attention:
    """Collects while a module runs; fused attention, which is what runs, never forms these products itself.

    ``heard`` are the encoder rows of each row, fewer than the keys of a layer where the company listens to more.
    """

    rows: Sequence[Row]
    heard: Sequence[int]
    layers: Sequence[Any]
    _seen: dict[Place, torch.Tensor] = field(init=False, factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row], heard: Sequence[int], layers: Sequence[Any]) -> Attention:
        """For a forward over ``rows``, whose ``layers`` show the keys of encoder rows.

        Raises:
            ValueError: a row attends to a head that is not there.
        """
        for layer, head in {pair for row in rows for pair in row.attend}:
            if not (0 <= layer < len(layers) and 0 <= head < layers[layer].keys.shape[1]):
                raise ValueError(f"there is no head {head} in layer {layer} to attend")
        return cls(rows, heard, layers)

    def look(self, module: Any, hidden: torch.Tensor) -> None:
        """Keep what ``module``, about to attend from ``hidden`` [rows, longest, width], would see."""
        layer = module.layer_idx
        for number, (row, heard) in enumerate(zip(self.rows, self.heard, strict=True)):
            heads = [head for wanted, head in row.attend if wanted == layer]
            if heads:
                keys = self.layers[layer].keys[number, heads, :heard].float()
                queries = (module.q_proj(hidden[number, : row.length]) * module.scaling).float()
                queries = queries.unflatten(-1, (-1, keys.shape[-1])).transpose(0, 1)[heads]
                products = queries @ keys.transpose(1, 2)
                self._seen.update({(row.slot, layer, head): one for head, one in zip(heads, products, strict=True)})

    def by_slot(self) -> dict[int, torch.Tensor]:
        """Float32 of shape [heads, positions, encoder rows] for each row that attends, heads in its order."""
        return {
            row.slot: torch.stack([self._seen[row.slot, layer, head] for layer, head in row.attend])
            for row in self.rows
            if row.attend
        }
