"""What the cross attention of one forward sees: products of queries and keys, for the rows and heads that ask."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import field, frozen

from asr_core.engines.torch._batch import Batch, Row
from asr_core.engines.torch._heard import Heard
from asr_core.engines.torch._memory import SlotLayer
from asr_core.engines.torch._places import PlaceLayer

Place = tuple[int, int, int]
"""Slot, layer, head."""


@frozen(eq=False)
class Attention:
    """Collects while a decoder runs; fused attention, which is what runs, never forms these products itself.

    ``lengths`` are the encoder rows of each row, fewer than the keys of a layer where the company listens to more.
    """

    rows: Sequence[Row]
    lengths: Sequence[int]
    layers: Sequence[SlotLayer | PlaceLayer]
    _seen: dict[Place, torch.Tensor] = field(init=False, factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row], batch: Batch, heard: Heard) -> Attention:
        """For a forward over ``rows``, to whom what they hear is shown.

        Raises:
            ValueError: a row attends to a head that is not there, or its slot was never bound.
        """
        lengths, layers = heard.show(rows, batch), heard.layers
        for layer, head in {pair for row in rows for pair in row.attend}:
            if not (0 <= layer < len(layers) and 0 <= head < len(layers[layer].keys_of(0))):
                raise ValueError(f"there is no head {head} in layer {layer} to attend")
        return cls(rows, lengths, layers)

    def look(self, layer: int, queries: torch.Tensor) -> None:
        """Keep what ``layer``, about to attend with scaled ``queries`` [rows, heads, longest, width], would see."""
        for number, (row, length) in enumerate(zip(self.rows, self.lengths, strict=True)):
            heads = [head for wanted, head in row.attend if wanted == layer]
            if heads:
                keys = self.layers[layer].keys_of(number)[heads, :length].float()
                products = queries[number, heads, : row.length].float() @ keys.transpose(1, 2)
                self._seen.update({(row.slot, layer, head): one for head, one in zip(heads, products, strict=True)})

    def by_slot(self) -> dict[int, torch.Tensor]:
        """Float32 of shape [heads, positions, encoder rows] for each row that attends, heads in its order."""
        return {
            row.slot: torch.stack([self._seen[row.slot, layer, head] for layer, head in row.attend])
            for row in self.rows
            if row.attend
        }
