"""The embedded engine keeps what every engine must, over a decoder that follows the suite's rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from asr_core.engines.compute import Compute
from asr_core.engines.embedded import TORCH
from asr_core.engines.torch import EngineLimits, Row, TorchEngine
from asr_core.testing.engine_conformance import EngineConformance
from asr_core.testing.rule_model import VOCABULARY, Context, values_of


class RuleDecoder:
    """The decoder protocol over :class:`Context`: slots with positions, rewound where a row says so."""

    def __init__(self) -> None:
        self._contexts: defaultdict[int, Context] = defaultdict(Context)
        self._attended: dict[int, torch.Tensor] = {}

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
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

    def _extend(self, row: Row) -> Any:
        context = self._contexts[row.slot]
        values = [value for part in row.parts for value in values_of(part)]
        if not values:
            raise ValueError("a row without positions")
        context.read(values, row.start)
        if row.attend:
            self._attended[row.slot] = torch.from_numpy(context.attention(row.attend, row.start))
        return context.scores(row.want)


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
