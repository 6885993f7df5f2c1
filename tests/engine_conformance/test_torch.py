"""The embedded engine keeps what every engine must, over a decoder that follows the suite's rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from attrs import evolve

from asr_core.engines.compute import Compute
from asr_core.engines.embedded import TORCH
from asr_core.engines.torch import EngineLimits, Row, TorchEngine
from asr_core.errors import EngineMismatchError
from asr_core.testing.engine_conformance import EngineConformance, ask_beam, collect, finish
from asr_core.testing.rule_model import VOCABULARY, Context, values_of


class RuleDecoder:
    """The decoder protocol over :class:`Context`: slots with positions, rewound where a row says so.

    Of branches the position in its text and the token of each place are kept.
    """

    branching = True

    def __init__(self) -> None:
        self._contexts: defaultdict[int, Context] = defaultdict(Context)
        self._places: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._attended: dict[int, torch.Tensor] = {}

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        self.free(slot)
        self._contexts[slot].hear(encoded)

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        if len({row.slot for row in rows}) < len(rows):
            raise ValueError("two rows of one slot")
        self._attended.clear()
        scores = [self._extend(row) for row in rows]
        return torch.from_numpy(np.concatenate(scores).reshape(-1, VOCABULARY)).float()

    def attended(self, slot: int) -> torch.Tensor:
        return self._attended[slot]

    def free(self, slot: int) -> None:
        self._contexts.pop(slot, None)
        self._places.pop(slot, None)

    def _extend(self, row: Row) -> Any:
        context = self._contexts[row.slot]
        if row.branches is not None:
            return self._branch(row, row.branches.follows)
        self._places.pop(row.slot, None)
        values = [value for part in row.parts for value in values_of(part)]
        if not values:
            raise ValueError("a row without positions")
        context.read(values, row.start)
        if row.attend:
            self._attended[row.slot] = torch.from_numpy(context.attention(row.attend, row.start))
        return context.scores(row.want)

    def _branch(self, row: Row, follows: torch.Tensor) -> Any:
        # All are in memory before any reads what it follows.
        self._places[row.slot].update(zip(row.places, zip(row.positions, row.ids(), strict=True), strict=True))
        return np.concatenate(
            [
                self._reread(row, [*seen.nonzero()[:, 0].tolist(), place])
                for seen, place in zip(follows, row.places, strict=True)
            ]
        )

    def _reread(self, row: Row, places: list[int]) -> Any:
        """What comes after a text of which ``places`` are all that is seen."""
        context, held = self._contexts[row.slot], self._places[row.slot]
        positions, tokens = zip(*sorted(held[place] for place in places[row.start :]), strict=True)
        if places[: row.start] != [*range(row.start)] or positions != (*range(row.start, len(places)),):
            raise ValueError("a branch is not all of a text")
        text = evolve(context, states=context.states[: row.start + 1])
        text.read(tokens, row.start)
        return text.scores()


class TestTorchEngine(EngineConformance):
    """Slots are freed when their request ends; prompts are read whole."""

    card = TORCH
    limits: ClassVar = EngineLimits(max_running=16, max_queued=8)
    takes = 24

    @pytest.fixture
    @classmethod
    def engine(cls) -> Iterator[TorchEngine]:
        compute = Compute()
        engine = TorchEngine(RuleDecoder(), compute, cls.limits)
        yield engine
        engine.close()
        compute.close()


class TestFewSlots(TestTorchEngine):
    """Slots keep what they hold and are found again by equal beginnings; prompts are read in small pieces."""

    limits: ClassVar = EngineLimits(max_running=3, max_queued=21, prefill_chunk=5, keep_prefixes=True)


class TestOneByOne(TestTorchEngine):
    """The hardest company: everybody waits for one slot."""

    limits: ClassVar = EngineLimits(max_running=1, max_queued=23, prefill_chunk=1, keep_prefixes=True)


def test_a_decoder_of_one_text_at_a_time_refuses_beams() -> None:
    decoder, compute = RuleDecoder(), Compute()
    decoder.branching = False
    engine = TorchEngine(decoder, compute)
    with pytest.raises(EngineMismatchError, match="one text at a time"):
        finish(collect(engine, ask_beam((7,))))
    engine.close()
    compute.close()
