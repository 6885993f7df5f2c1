"""What slots listen to: encoder rows as keys and values of each layer, beside the memory of what was said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from asr_core.engines.torch._batch import Batch, Row
from asr_core.engines.torch._memory import SlotLayer, SlotMemory

Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, each of shape [heads, n, width]."""


class Heard:
    """Moves with ``memory``; ``layers`` are there once the first slot was bound, and ``mask`` is of the last batch.

    ``mask`` [rows, 1, 1, longest] holds the bias of each row and hides what stands behind the end of shorter ones; None
    where there is nothing of both. Neighbours are read by one product: one for each slot, wherever it lies, took 36 ms
    a step of 16 instead of 29.
    """

    def __init__(self, memory: SlotMemory) -> None:
        self.layers: list[SlotLayer] = []
        self.mask: torch.Tensor | None = None
        self._memory = memory
        self._biases: dict[int, torch.Tensor] = {}
        self._company: tuple[int, ...] = ()

    def bind(self, slot: int, pairs: Iterable[Pair], bias: torch.Tensor | None = None) -> None:
        """Let ``slot`` hear these, a pair per layer, and forget all else it held.

        ``bias`` [n] is added to the products of queries and keys.
        """
        self._memory.rewind(slot, 0, 0)
        self._company = ()
        for number, (keys, values) in enumerate(pairs):
            if number == len(self.layers):
                self.layers.append(self._memory.new_layer())
            self.layers[number].store(self._memory.place(slot), keys, values)
            self._biases[slot] = keys.new_zeros(keys.shape[1]) if bias is None else bias

    def show(self, rows: Sequence[Row], batch: Batch) -> list[int]:
        """Let the coming forward read what each row hears; how long that is.

        Raises:
            ValueError: a slot was never bound.
        """
        if unbound := [row.slot for row in rows if row.slot not in self._biases]:
            raise ValueError(f"slots {unbound} were never bound to encoder rows")
        lengths = [len(self._biases[row.slot]) for row in rows]
        for layer in self.layers:
            layer.show(batch.places, max(lengths))
        company = tuple(row.slot for row in rows)
        if company != self._company:
            hidden = torch.finfo(batch.mask.dtype).min
            biases = [self._biases[slot] for slot in company]
            mask = pad_sequence(biases, batch_first=True, padding_value=hidden).to(batch.mask)[:, None, None]
            self._company, self.mask = company, mask if mask.any() else None
        return lengths

    def free(self, slot: int) -> None:
        """``slot`` hears nothing."""
        self._biases.pop(slot, None)
        self._company = ()

    def release(self) -> None:
        """No slot hears anything."""
        self._biases.clear()
        self._company, self.mask = (), None
