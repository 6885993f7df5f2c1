"""Keys and values of many slots in one tensor per layer, so that one forward serves rows of many requests.

Attention reads views: the slots of a batch must lie side by side, and are moved there when they do not. Copying them
for every step took 71 of 185 ms with eight rows of a base model on one core; one move per change of company is rare.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from transformers.cache_utils import CacheLayerMixin

from asr_core.engines.torch._batch import Batch
from asr_core.engines.torch._places import Form, PlaceLayer
from asr_core.kernels import attend, reads_stretches

GROWTH = 4
"""Places that memory grows by: twice as many would often stand empty, tens of megabytes each."""


class SlotLayer:
    """Keys and values of one layer, each of shape [places, heads, positions, width]; what transformers calls a layer.

    ``keys`` and ``values`` are views of what the batch at hand may read.
    """

    is_sliding = False
    is_compileable = False

    def __init__(self, memory: SlotMemory) -> None:
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None
        self._memory = memory
        self._stored: tuple[torch.Tensor, ...] = ()

    def show(self, places: slice, length: int) -> None:
        """Let the coming forward read ``length`` positions of neighbouring places."""
        self.keys, self.values = (stored[places, :, :length] for stored in self._stored)

    def settle(self, places: slice, length: int) -> int:
        """Let many forwards read ``length`` positions or, where that is faster, more; how many.

        Of products that copy a stretch before they read it, one row has a copy made once, and more rows read to the
        end of the memory, zeros behind their own: with 562 of 1500 positions, steps of a base model take 9 ms instead
        of 11, and of 16 rows 28 instead of 35.
        """
        self.show(places, length)
        if reads_stretches(self.readable[0]):
            return length
        if places.stop - places.start == 1:
            self.keys, self.values = (shown.contiguous() for shown in self.readable)
            return length
        whole = int(self._stored[0].shape[2])
        self.show(places, whole)
        return whole

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the batch's true positions and return views of all it may read; called by the module."""
        batch = self._memory.batch
        if batch is None:
            raise RuntimeError("a module wrote keys outside of a batch")
        self.reserve(batch.places.stop, batch.length, keys, values)
        if batch.even:
            return self._append(batch, keys, values)
        (rows, offsets), (places, positions) = batch.true, batch.written
        for stored, new in zip(self._stored, (keys, values), strict=True):
            # Of steps every position is true.
            true = new[:, :, 0] if new.shape[2] == 1 else new.transpose(1, 2)[rows, offsets]
            stored[places, :, positions] = true
        self.show(batch.places, batch.length)
        return self.readable

    def _append(self, batch: Batch, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies one stretch, where writing by lists of places takes three times as long."""
        self.show(batch.places, batch.length)
        for shown, new in zip(self.readable, (keys, values), strict=True):
            shown[:, :, batch.end - 1 : batch.end] = new
        return self.readable

    @property
    def readable(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values that the batch at hand may read."""
        if self.keys is None or self.values is None:
            raise RuntimeError("nothing was shown to be read")
        return self.keys, self.values

    def attend(self, queries: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """What scaled ``queries`` [rows, heads, n, width] find in what was shown."""
        return attend(queries, *self.readable, mask, scale=1)

    def keys_of(self, row: int) -> torch.Tensor:
        """What a row of the batch reads, of shape [heads, positions, width]."""
        return self.readable[0][row]

    def store(self, place: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Fill ``place`` with keys and values of shape [heads, n, width], and zeros behind them."""
        length = keys.shape[1]
        self.reserve(place + 1, length, keys[None], values[None])
        for stored, new in zip(self._stored, (keys, values), strict=True):
            stored[place, :, :length] = new
            stored[place, :, length:] = 0

    def reserve(self, places: int, positions: int, *like: torch.Tensor) -> None:
        """Make room, keeping what is there; never written memory is zero, as NaN times a weight of 0 is NaN."""
        if not self._stored:
            self._stored = tuple(new.new_zeros(0, new.shape[1], 0, new.shape[3]) for new in like)
        has_places, _, has_positions, _ = self._stored[0].shape
        if places > has_places or positions > has_positions:
            self.keys = self.values = None  # views that would keep the old memory alive beside the new
            # Several places at once, as every growth copies; positions of all places grow with the longest.
            wanted = max(has_places, -(-places // GROWTH) * GROWTH), max(has_positions, positions)
            self._stored = tuple(self._grown(stored, *wanted) for stored in self._stored)

    def _grown(self, stored: torch.Tensor, places: int, positions: int) -> torch.Tensor:
        had_places, heads, had_positions, width = stored.shape
        grown = stored.new_zeros(places, heads, positions, width)
        grown[:had_places, :, :had_positions] = stored
        return grown

    def exchanged(self, one: int, other: int) -> list[torch.Tensor]:
        """Copies of what two places hold, the other one first; all that an exchange allocates."""
        if self._stored:
            self.reserve(max(one, other) + 1, 0)
        return [stored[[other, one]] for stored in self._stored]

    def exchange(self, one: int, other: int, contents: list[torch.Tensor]) -> None:
        """Write what :meth:`exchanged` gave."""
        for stored, (first, second) in zip(self._stored, contents, strict=True):
            stored[one].copy_(first)
            stored[other].copy_(second)

    def wipe(self, place: int) -> None:
        """Write zeros, so that the NaN of a bad request cannot reach the next one in its place."""
        for stored in self._stored:
            stored[place : place + 1] = 0

    def release(self) -> None:
        """Give the memory back."""
        self.keys = self.values = None
        self._stored = ()

    def get_seq_length(self) -> int:
        """Asked for by modules that would count positions themselves; ours are always explicit."""
        return 0


# A layer by registration: nothing of the base class is of use here, and its __init__ assigns keys and values.
CacheLayerMixin.register(SlotLayer)


class SlotMemory:
    """Which place a slot's keys lie in, and how many positions of it are valid; ``capacity`` bounds them.

    ``batch`` is what the coming forward writes and reads; ``moves`` grows when views of places may have become wrong.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.batch: Batch | None = None
        self.moves = 0
        self.layers: list[SlotLayer | PlaceLayer] = []
        self._places: list[int | None] = []  # the slot that lies in each place
        self._lengths: dict[int, int] = {}

    def new_layer(self) -> SlotLayer:
        """A layer that moves with the others."""
        self.layers.append(layer := SlotLayer(self))
        return layer

    def new_places(self, form: type[Form]) -> PlaceLayer:
        """The same, of which each place's part is a ``form`` of its own."""
        self.layers.append(layer := PlaceLayer(form))
        return layer

    def place(self, slot: int) -> int:
        """Where ``slot`` lies; a new one gets the first empty place."""
        if slot not in self._places:
            if None not in self._places:
                self._places.append(None)
            self._places[self._places.index(None)] = slot
        return self._places.index(slot)

    def rewind(self, slot: int, start: int, end: int) -> None:
        """Forget what lies behind ``start``, from where a text is to go on to its position ``end``.

        Raises:
            ValueError: a gap would be left, or the slot cannot hold as many.
        """
        held = self._lengths.get(slot, 0)
        if start > held:
            raise ValueError(f"a row starts at {start}, but its slot holds {held} positions")
        if end > self.capacity:
            raise ValueError(f"a row ends at {end}, but a slot has {self.capacity} positions")
        self._lengths[slot] = start

    def written(self, slot: int, length: int) -> None:
        """Positions up to ``length`` are valid now."""
        self._lengths[slot] = length

    def align(self, slots: Collection[int]) -> tuple[int, list[int]]:
        """Bring ``slots`` side by side with as few moves as possible; the first place, and the slots in order."""
        places = {self.place(slot) for slot in slots}
        count = len(places)
        windows = (range(first, first + count) for first in range(len(self._places) - count + 1))
        window = max(windows, key=lambda window: len(places.intersection(window)))
        for outside, inside in zip(sorted(places.difference(window)), sorted(set(window) - places), strict=True):
            self._swap(outside, inside)
        return window.start, [slot for slot in self._places[window.start : window.stop] if slot is not None]

    def free(self, slot: int) -> None:
        """Forget everything about ``slot``."""
        self._lengths.pop(slot, None)
        if slot in self._places:
            place = self._places.index(slot)
            for layer in self.layers:
                layer.wipe(place)
            self._places[place] = None

    def release(self) -> None:
        """Give all memory back; slots are empty and may be used again."""
        for layer in self.layers:
            layer.release()
        self.batch = None
        self._places.clear()
        self._lengths.clear()

    def _swap(self, one: int, other: int) -> None:
        self.moves += 1
        # Memory that runs out must not leave some layers moved and others not.
        contents = [layer.exchanged(one, other) for layer in self.layers]
        for layer, content in zip(self.layers, contents, strict=True):
            layer.exchange(one, other, content)
        self._places[one], self._places[other] = self._places[other], self._places[one]
