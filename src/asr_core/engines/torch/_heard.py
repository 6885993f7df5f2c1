"""What slots listen to: encoder rows as keys and values of each layer, beside the memory of what was said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from asr_core.engines.torch._batch import Batch, Row
from asr_core.engines.torch._memory import SlotLayer, SlotMemory
from asr_core.engines.torch._places import Form, PlaceLayer
from asr_core.kernels import Columns, Int8Rows, has_int8_rows

Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, each of shape [heads, n, width]."""


class Heard:
    """Moves with ``memory``; ``layers`` are there once the first slot was bound, and ``mask`` is of the last batch.

    ``mask`` [rows, 1, 1, longest] holds the bias of each row and hides what stands behind the end of shorter ones; None
    where there is nothing of both. Of a :class:`SlotLayer` neighbours are read by one product: one for each slot,
    wherever it lies, took 36 ms a step of 16 in bfloat16 instead of 29.
    """

    def __init__(self, memory: SlotMemory, *, attends: bool, int8: bool) -> None:
        self._attends, self._int8 = attends, int8
        self.layers: list[SlotLayer | PlaceLayer] = []
        self.mask: torch.Tensor | None = None
        self._memory = memory
        self._biases: dict[int, torch.Tensor] = {}
        self._shown: tuple[int, ...] = ()

    def bind(self, slot: int, pairs: Iterable[Pair], bias: torch.Tensor | None = None) -> None:
        """Let ``slot`` hear these, a pair per layer, and forget all else it held.

        ``bias`` [n] is added to the products of queries and keys.
        """
        self._memory.rewind(slot, 0, 0)
        self._shown = ()
        for number, (keys, values) in enumerate(pairs):
            if number == len(self.layers):
                form = self._form(keys)
                self.layers.append(self._memory.new_places(form) if form else self._memory.new_layer())
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
        # What the last forward was shown, this one may read as well.
        if (shown := (self._memory.moves, *(row.slot for row in rows))) != self._shown:
            self._shown = ()
            self._gather(rows, batch, max(lengths))
            self._shown = shown
        return lengths

    def attend(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """What scaled ``queries`` [rows, heads, n, width] find in what their rows hear; for decoders that attend."""
        return self.layers[layer].attend(queries, self.mask)

    def _form(self, keys: torch.Tensor) -> type[Form] | None:
        """What each place's part of a layer is by itself; None where one product of all places reads it faster."""
        if not self._attends or keys.device.type != "cpu":
            return None
        if self._int8 and has_int8_rows(keys.shape[-1]):
            return Int8Rows
        return Columns if keys.dtype == torch.float32 else None

    def _gather(self, rows: Sequence[Row], batch: Batch, longest: int) -> None:
        settled = [layer.settle(batch.places, longest) for layer in self.layers]
        shape = (len(rows), 1, 1, max(settled, default=longest))
        mask = torch.full(shape, torch.finfo(batch.dtype).min, dtype=batch.dtype, device=batch.positions.device)
        for number, row in enumerate(rows):
            bias = self._biases[row.slot]
            mask[number, :, :, : len(bias)] = bias
        self.mask = mask if mask.any() else None

    def free(self, slot: int) -> None:
        """``slot`` hears nothing."""
        self._biases.pop(slot, None)
        self._shown = ()

    def release(self) -> None:
        """No slot hears anything."""
        self._biases.clear()
        self._shown, self.mask = (), None
