"""Rows of many slots as one rectangle: positions, masks, and where true keys go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

import torch
from attrs import frozen

from asr_core.types import Tokens

PartOfRow: TypeAlias = Tokens | torch.Tensor


@frozen(eq=False)
class Branches:
    """Tokens of a row that are alternatives of one another, each the end of a text of its own.

    Token i is put at position ``places[i]`` of the slot's memory and, besides itself, reads only the positions that
    ``follows[i]``, bool of shape [positions in memory], tells: as many come before it in its text. So what alternatives
    have in common is held once, and places that no text needs any more are taken again.
    """

    places: tuple[int, ...]
    follows: torch.Tensor


@frozen(eq=False)
class Row:
    """New positions of one slot: token runs or embeddings of shape [n, width], from position ``start`` on.

    What the slot held from ``start`` on is forgotten, but for what ``branches`` follow. ``want`` last positions are
    answered with logits. ``attend`` names heads of cross attention, as (layer, head), whose products with the encoder
    rows are kept.
    """

    slot: int
    start: int
    parts: tuple[PartOfRow, ...]
    want: int = 1
    attend: tuple[tuple[int, int], ...] = ()
    branches: Branches | None = None

    @property
    def length(self) -> int:
        """How many positions it adds."""
        return sum(len(part) for part in self.parts)

    @property
    def places(self) -> Sequence[int]:
        """Where in the slot's memory they go, of shape [length]."""
        return self.branches.places if self.branches else range(self.start, self.start + self.length)

    @property
    def positions(self) -> Sequence[int]:
        """Which they are in their text, of shape [length]."""
        return self.branches.follows.sum(1).tolist() if self.branches else self.places

    @property
    def end(self) -> int:
        """Positions of the slot's memory that are in use afterwards."""
        held = self.branches.follows.shape[1] if self.branches else 0
        return max(held, 1 + max(self.places))

    def ids(self) -> list[int]:
        """A token per position, 0 where an embedding stands."""
        return [token for part in self.parts for token in (part if isinstance(part, tuple) else [0] * len(part))]

    def embeddings(self) -> Iterable[tuple[int, torch.Tensor]]:
        """Each part that is not tokens, with its offset."""
        offset = 0
        for part in self.parts:
            if isinstance(part, torch.Tensor):
                yield offset, part
            offset += len(part)


def length_classes(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows whose lengths differ by less than twice, so that no forward is mostly padding.

    One-token steps are a class of their own: padded to a prompt of 64, seven of them took 342 ms instead of 146.
    """
    classes: dict[int, list[Row]] = {}
    for row in rows:
        classes.setdefault(row.length.bit_length(), []).append(row)
    return [classes[size] for size in sorted(classes)]


STEP = 64
"""Positions are read and allocated in multiples of this many: growing with every token would mean copying with it, and
oneDNN keeps half a megabyte for every length of a product that it met."""


@frozen(eq=False)
class Batch:
    """Rows in the order of the neighbouring ``places`` they occupy; queries beyond a row's end are padding.

    ``positions`` [rows, width] are those in a text, ``targets`` those in the slots' memory; they and the additive
    ``mask`` [rows, 1, width, length] make a padding query repeat the last true one: it reads its own row only.
    ``lengths`` [rows, 1] tell which are true. ``length`` positions are read, a multiple of STEP. Of an ``even`` batch
    each row writes one, the last of its ``end``. ``dtype`` is that of hidden states and mask.
    """

    rows: Sequence[Row]
    places: slice
    length: int
    end: int
    even: bool
    positions: torch.Tensor
    targets: torch.Tensor
    lengths: torch.Tensor
    dtype: torch.dtype

    @classmethod
    def of(cls, rows: Sequence[Row], first_place: int, like: torch.Tensor) -> Batch:
        """For rows in the places from ``first_place`` on; ``like`` has the device and dtype of hidden states."""
        lengths = [row.length for row in rows]
        end = max(row.end for row in rows)
        return cls(
            rows=rows,
            places=slice(first_place, first_place + len(rows)),
            length=-(-end // STEP) * STEP,
            end=end,
            even=all(row.length == 1 and row.places[0] + 1 == end for row in rows),
            positions=_padded([row.positions for row in rows], max(lengths)).to(like.device),
            targets=_padded([row.places for row in rows], max(lengths)).to(like.device),
            lengths=torch.tensor(lengths, device=like.device)[:, None],
            dtype=like.dtype,
        )

    @cached_property
    def mask(self) -> torch.Tensor:
        """See the class."""
        seen = torch.arange(self.length, device=self.positions.device) <= self.targets[:, None, :, None]
        for number, row in enumerate(self.rows):
            if row.branches is not None:
                seen[number, 0] = self._seen(row.branches).to(seen.device)
        return additive_mask(seen, self.dtype)

    def _seen(self, branches: Branches) -> torch.Tensor:
        """What each of ``branches`` reads, of shape [width, length]; the last again for padding."""
        count, held = branches.follows.shape
        seen = torch.zeros(self.positions.shape[1], self.length, dtype=torch.bool)
        seen[:count, :held] = branches.follows
        seen[range(count), branches.places] = True
        seen[count:] = seen[count - 1]
        return seen

    @cached_property
    def true(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and offsets of the true queries, the only ones whose keys are written; an even batch never asks."""
        steps = torch.arange(self.positions.shape[1], device=self.positions.device)
        rows, offsets = (steps < self.lengths).nonzero(as_tuple=True)
        return rows, offsets

    @cached_property
    def written(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Places and positions that keys of the true queries go to."""
        rows, _ = self.true
        return rows + self.places.start, self.targets[self.true]


def _padded(rows: Sequence[Sequence[int]], width: int) -> torch.Tensor:
    """Of shape [rows, width], the last of each row again where it ends before."""
    return torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])


def additive_mask(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where ``seen``, else the least number of ``dtype``: a bool mask is added as 0 and 1 by eager attention."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


def padded_ids(rows: Sequence[Row], device: torch.device) -> torch.Tensor:
    """Token ids of shape [rows, longest], with 0 as padding: what stands there is read by nobody."""
    ids = [row.ids() for row in rows]
    width = max(map(len, ids))
    return torch.tensor([row + [0] * (width - len(row)) for row in ids], device=device)
