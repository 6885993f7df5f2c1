"""One method carries a decoder: ``extend`` is prefill, chunk, step, reuse of keys and values, and probe.

Rows of many slots share one forward per length class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch

from asr_core.engines.torch._batch import Batch, Row, length_classes
from asr_core.engines.torch._memory import SlotMemory

Head = Callable[[torch.Tensor], torch.Tensor]


class Decoder(Protocol):
    """What the engine drives; slots are small integers of the engine's choosing, empty until first used."""

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """Let ``slot`` listen to encoder rows of shape [n, width], forgetting all else it held."""

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """Float32 logits of shape [sum of want, vocabulary], in the order of rows, of different slots each."""

    def free(self, slot: int) -> None:
        """Forget everything about ``slot``; harmless for an empty one."""


@runtime_checkable
class AttentiveDecoder(Decoder, Protocol):
    """A decoder whose cross attention can be seen."""

    def attended(self, slot: int) -> torch.Tensor:
        """What the slot's row of the last ``extend`` asked for: float32 of shape [heads, positions, encoder rows]."""


@runtime_checkable
class BranchingDecoder(Decoder, Protocol):
    """A decoder that takes rows with branches, which ``branching`` says."""

    branching: bool


@runtime_checkable
class SlotDecoder(Decoder, Protocol):
    """A decoder with memory of its own: slots cost nothing while they keep what they hold, so prefixes can be reused.

    ``capacity`` is the number of positions of a slot.
    """

    capacity: int

    def release(self) -> None:
        """Give the memory of all slots back; they are empty then and may be used again."""


class BatchedDecoder:
    """The order of business of ``extend`` for decoders with memory for all slots; the forward is the subclass's.

    ``head`` maps hidden states to logits, ``like`` has the device and dtype of the hidden states, ``capacity`` bounds
    the positions of a slot.
    """

    branching = True

    def __init__(self, head: Head, like: torch.Tensor, capacity: int) -> None:
        self.capacity = capacity
        self.memory = SlotMemory(capacity)
        self._head = head
        self._like = like

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """See :class:`Decoder`.

        Raises:
            ValueError: a row without positions, with a gap before it or beyond the capacity, or two of one slot.
        """
        if len({row.slot for row in rows}) < len(rows):
            raise ValueError("two rows of one slot")
        for row in rows:
            if not row.length:
                raise ValueError("a row without positions")
            self.memory.rewind(row.slot, row.start, 1 + max(row.positions))
        hidden: dict[int, torch.Tensor] = {}
        for group in length_classes(rows):
            hidden.update(self._extend(group))
        # One product with the vocabulary for all rows: the largest matrix of a small model is read once.
        return self._head(torch.cat([hidden[row.slot] for row in rows])).float()

    def free(self, slot: int) -> None:
        """See :class:`Decoder`."""
        self.memory.free(slot)

    def release(self) -> None:
        """See :class:`SlotDecoder`."""
        self.memory.release()

    def forward(self, rows: Sequence[Row], batch: Batch) -> torch.Tensor:
        """Hidden states of shape [rows, longest, width], with the keys of ``batch`` written to the memory's layers."""
        raise NotImplementedError

    def _extend(self, rows: Sequence[Row]) -> dict[int, torch.Tensor]:
        """Hidden states of shape [want, width] by slot."""
        by_slot = {row.slot: row for row in rows}
        first, slots = self.memory.align(by_slot.keys())
        ordered = [by_slot[slot] for slot in slots]
        batch = Batch.of(ordered, first, self._like)
        self.memory.batch = batch
        states = self.forward(ordered, batch)
        for row in ordered:
            self.memory.written(row.slot, row.end)
        return {row.slot: states[n, row.length - row.want : row.length] for n, row in enumerate(ordered)}
