"""A request on its way through the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from attrs import define, field

from asr_core.engines.protocol import EncodedRows, Finished, GeneratedToken, GenerationRequest
from asr_core.engines.torch._batch import PartOfRow, Row
from asr_core.engines.torch._beams import Beams
from asr_core.errors import EngineError
from asr_core.types import Tokens

Item: TypeAlias = GeneratedToken | Finished | Exception | None
"""What a request's stream receives; None ends it without a result, after an abort."""

PositionKey: TypeAlias = int | tuple[bytes, int]
"""What a position holds: a token, or a row of keyed encoder rows."""


@define(eq=False)
class Slot:
    """One of the decoder's: ``held`` tells what its first positions hold, ``cross`` what it listens to."""

    number: int
    held: list[PositionKey] = field(factory=list)
    cross: bytes | None = None

    def match(self, keys: list[PositionKey], cross: bytes | None) -> int:
        """How many first positions hold what ``keys`` say; with other cross attention none does."""
        if self.cross != cross:
            return 0
        pairs = enumerate(zip(self.held, keys, strict=False))
        return next((n for n, (one, other) in pairs if one != other), min(len(self.held), len(keys)))


@define(eq=False)
class Run:
    """What was decided so far, and where the next position goes.

    ``position`` counts the positions that are in memory; while it is less than ``length``, the prompt is being read.
    ``turn`` is the number of the one in which it was last stepped. ``attention`` is what the chunks of the prompt saw,
    of shape [heads, positions, encoder rows] each. With ``beams`` the output is what these have decided.
    """

    request: GenerationRequest
    budget: int
    send: Callable[[Item], bool]
    slot: Slot | None = None
    position: int = 0
    turn: int = 0
    aborted: bool = False
    ended: bool = False
    attention: list[npt.NDArray[np.float32]] = field(factory=list)
    beams: Beams | None = None
    output: list[int] = field(init=False)
    keys: list[PositionKey] = field(init=False)
    generator: torch.Generator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.output = list(self.request.given)
        self.keys = [key for part in self._parts() for key in _keys(part)]
        self.generator = torch.Generator().manual_seed(self.request.sampling.seed)

    @classmethod
    def of(cls, request: GenerationRequest, capacity: int | None, send: Callable[[Item], bool]) -> Run:
        """A run whose budget keeps it within ``capacity`` positions.

        Raises:
            EngineError: there is nothing to read, or more than a slot holds.
        """
        run = cls(request, request.budget, send)
        if not run.length:
            raise EngineError("the prompt is empty")
        if capacity is not None:
            if run.length > capacity:
                raise EngineError(f"the prompt has {run.length} positions, and the engine can hold {capacity}")
            # The last token is not read again, so it needs no position.
            run.budget = min(run.budget, capacity - run.length + 1)
        if request.sampling.beam_size > 1:
            run.beams = Beams(request.sampling.beam_size, request.stop, run.budget, run.length)
        return run

    @property
    def length(self) -> int:
        """Positions of prompt and given tokens."""
        return len(self.keys)

    @property
    def reading(self) -> bool:
        """Whether the prompt is not in memory yet."""
        return self.position < self.length

    @property
    def cross(self) -> bytes | None:
        """What cross attention listens to, by key."""
        return None if self.request.cross is None else self.request.cross.key

    @property
    def generated(self) -> int:
        """Tokens decided by the engine."""
        return len(self.output) - len(self.request.given)

    @property
    def late(self) -> bool:
        """Whether its deadline has passed."""
        return self.request.deadline is not None and time.monotonic() >= self.request.deadline

    def chunk(self, slot: int, count: int) -> Row:
        """The next ``count`` positions of the prompt, answered if they are the last."""
        end = self.position + count
        parts = tuple(_slices(self._parts(), self.position, end))
        return Row(slot, self.position, parts, want=1 if end == self.length else 0, attend=self.request.attend)

    def step(self, slot: int) -> Row:
        """The token decided last, or those that may yet be."""
        if self.beams is not None:
            return Row(slot, self.length, (self.beams.last,), len(self.beams.last), branches=self.beams.branches)
        return Row(slot, self.position, ((self.output[-1],),))

    def key(self, position: int) -> PositionKey:
        """What ``position`` of prompt and output holds."""
        if position < self.length:
            return self.keys[position]
        return self.output[position - self.length + len(self.request.given)]

    def _parts(self) -> tuple[Tokens | EncodedRows, ...]:
        return (*self.request.prompt, self.request.given)


def _keys(part: Tokens | EncodedRows) -> Iterator[PositionKey]:
    if isinstance(part, EncodedRows):
        return ((part.key, number) for number in range(len(part.rows)))
    return iter(part)


def _slices(parts: tuple[Tokens | EncodedRows, ...], start: int, end: int) -> Iterator[PartOfRow]:
    """What ``parts`` hold at positions ``start`` to ``end``."""
    for part in parts:
        content = part.rows if isinstance(part, EncodedRows) else part
        if start < len(content) and end > 0:
            yield content[max(start, 0) : end]
        start, end = start - len(content), end - len(content)
