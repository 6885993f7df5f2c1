"""One method carries a decoder: ``extend`` is prefill, chunk, step, reuse of keys and values, and probe.

The two adapters wrap modules that follow transformers' calling convention: ``cache=``, ``position_ids=``, a 4-D
``attention_mask`` and a ``last_hidden_state`` in the result. Rows of many slots share one forward per length class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from asr_core.engines.torch._batch import Batch, Row, length_classes
from asr_core.engines.torch._memory import SlotMemory
from asr_core.errors import EngineMismatchError

MASKED = ("sdpa", "eager")
"""Implementations of attention that take an additive mask of any shape."""

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
class SlotDecoder(Decoder, Protocol):
    """A decoder with memory of its own: slots cost nothing while they keep what they hold, so prefixes can be reused.

    ``capacity`` is the number of positions of a slot.
    """

    capacity: int

    def release(self) -> None:
        """Give the memory of all slots back; they are empty then and may be used again."""


class BatchedDecoder:
    """What both adapters share: the order of business of ``extend``; the forward itself is the subclass's.

    ``capacity`` bounds the positions of a slot, by default to what the module was built for.

    Raises:
        EngineMismatchError: the module keeps something else than keys of all positions, or hides its attention.
    """

    def __init__(self, module: Any, head: Head, *, capacity: int | None = None) -> None:
        _check(module)
        self.capacity = min(_positions(module.config), capacity or _positions(module.config))
        self._module = module
        self._head = head
        self._embed = module.get_input_embeddings()
        self._memory = SlotMemory(self.capacity)
        self._cache = Cache(layer_class_to_replicate=self._memory.new_layer)

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
            self._memory.rewind(row.slot, row.start, row.length)
        hidden: dict[int, torch.Tensor] = {}
        for group in length_classes(rows):
            hidden.update(self._extend(group))
        # One product with the vocabulary for all rows: the largest matrix of a small model is read once.
        return self._head(torch.cat([hidden[row.slot] for row in rows])).float()

    def free(self, slot: int) -> None:
        """See :class:`Decoder`."""
        self._memory.free(slot)

    def release(self) -> None:
        """See :class:`SlotDecoder`."""
        self._memory.release()

    def _extend(self, rows: Sequence[Row]) -> dict[int, torch.Tensor]:
        """Hidden states of shape [want, width] by slot."""
        by_slot = {row.slot: row for row in rows}
        first, slots = self._memory.align(by_slot.keys())
        ordered = [by_slot[slot] for slot in slots]
        batch = Batch.of(ordered, first, self._embed.weight)
        self._memory.batch = batch
        states = self._forward(ordered, batch)
        for row in ordered:
            self._memory.written(row.slot, row.start + row.length)
        return {row.slot: states[n, row.length - row.want : row.length] for n, row in enumerate(ordered)}

    def _forward(self, rows: Sequence[Row], batch: Batch) -> torch.Tensor:
        """Hidden states of shape [rows, longest, width]."""
        raise NotImplementedError

    def _run(self, batch: Batch, cache: Any, **inputs: Any) -> torch.Tensor:
        states: torch.Tensor = self._module(
            # Every mask and position is explicit: what a module makes up for ragged rows is silently wrong.
            attention_mask=batch.mask,
            position_ids=batch.positions,
            cache=cache,
            use_cache=True,
            **inputs,
        ).last_hidden_state
        return states


def _check(module: Any) -> None:
    kinds = {type(layer) for layer in DynamicCache(config=module.config).layers}
    if kinds != {DynamicLayer}:
        named = ", ".join(sorted(kind.__name__ for kind in kinds - {DynamicLayer}))
        raise EngineMismatchError(f"{type(module).__name__} needs more than keys of all positions: {named}")
    if module.config._attn_implementation not in MASKED:
        raise EngineMismatchError(f"attention {module.config._attn_implementation!r} takes no additive mask")


def _positions(config: Any) -> int:
    for name in ("max_target_positions", "max_position_embeddings"):
        if positions := getattr(config, name, None):
            return int(positions)
    raise EngineMismatchError(f"{type(config).__name__} does not say how many positions it has")
