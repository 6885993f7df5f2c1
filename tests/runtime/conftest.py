"""An encoder service around a plugin that records what its encoder is given."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import define, evolve

from asr_core import audio
from asr_core.engines.compute import Compute
from asr_core.plugins import Plugins
from asr_core.runtime.encoder import EncoderService
from asr_core.testing.distributions import write_distribution
from asr_core.types import AudioSpan, CheckpointModel, Clip, FrontendModel, LoadedModel, UploadLimits

RATE = 16_000
FRAME = 100
PATIENCE = 30.0
"""Seconds after which a test gives up; nothing here takes as long unless it is broken."""


def sound(*levels: int) -> Clip:
    """A clip whose frames have these levels."""
    samples = np.repeat(np.array(levels, np.float32), FRAME)
    return audio.from_array(samples, RATE, RATE, UploadLimits(min_seconds=0)).clip()


def frames(*numbers: int, cost: float = 1.0, key: str = "", tokens: int = 1) -> tuple[AudioSpan, ...]:
    """One span for each of these frames."""
    return tuple(AudioSpan(FRAME * n, FRAME * (n + 1), tokens, key, cost) for n in numbers)


async def until(condition: Callable[[], bool]) -> None:
    """Let everything else go on until ``condition`` holds."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), PATIENCE)


@define(eq=False)
class Bench:
    """A service, what its encoder saw, and the thread it computes on."""

    service: EncoderService
    model: LoadedModel
    compute: Compute
    asked: int = 0

    @property
    def encoder(self) -> Any:
        return self.model.weights.encoder

    @property
    def batches(self) -> list[list[int]]:
        """The first level of each feature of each batch."""
        return [[int(levels[0]) for levels in batch] for batch in self.encoder.batches]

    @property
    def extracted(self) -> list[int]:
        """The frames at which the spans begin whose features were computed."""
        return [span.start_sample // FRAME for span in self.model.frontend]

    def counts(self, *names: str) -> tuple[int, ...]:
        statistics = self.service.statistics()
        return tuple(getattr(statistics, name) for name in names)

    async def levels(self, clip: Clip, spans: Sequence[AudioSpan]) -> list[int]:
        """What the rows of each span begin with."""
        self.asked += len(set(spans))
        encoded = await asyncio.wait_for(self.service.encode(clip, spans), PATIENCE)
        return [int(item.rows[0, 0]) for item in encoded]

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """The compute thread does something else meanwhile."""
        gate, busy = threading.Event(), threading.Event()
        self.compute.submit(lambda: busy.set() or gate.wait(PATIENCE))
        await asyncio.to_thread(busy.wait, PATIENCE)
        try:
            yield
        finally:
            gate.set()

    async def together(self, *requests: Awaitable[Any]) -> list[Any]:
        """Results or errors of requests that all wait before the first batch is made, registered in this order."""
        async with self.held():
            tasks = []
            for request in requests:
                seen, asked = self._seen(), self.asked
                tasks.append(asyncio.ensure_future(request))
                # What is known is seen at once, the rest when its features were computed.
                await until(
                    lambda task=tasks[-1], seen=seen, asked=asked: (
                        task.done() or self._seen() - seen >= max(1, self.asked - asked)
                    )
                )
        return await asyncio.gather(*tasks, return_exceptions=True)

    def _seen(self) -> int:
        return sum(self.counts("hits", "merged", "misses", "refused"))


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """Builders of clips and spans, and a way to wait for a state."""
    return SimpleNamespace(sound=sound, frames=frames, until=until)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugins]:
    """The recorder, installed."""
    directory = tmp_path_factory.mktemp("recorder")
    source = (Path(__file__).parent / "plugins" / "recorder.py").read_text()
    write_distribution(directory, "asr-recorder", {"asr_recorder_for_tests": source}, {"r": "asr_recorder_for_tests"})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        importlib.invalidate_caches()
        yield Plugins.discover(allow=["asr-recorder"])


@pytest.fixture
def bench(plugins: Plugins) -> Iterator[Callable[..., Bench]]:
    """Opens benches: ``bench("bounded", timeout_s=...)`` is that model with its policy, changed as said."""
    with ExitStack() as stack:

        def open_bench(name: str, *, generates: bool = True, **changes: Any) -> Bench:
            checkpoint, card, hooks = plugins.resolve(name)
            named = CheckpointModel(card, checkpoint)
            ready = FrontendModel(card, checkpoint, hooks.prepare_frontend(named))
            weights = hooks.load_weights(ready, frozenset({"encoder"}), "cpu", "float32")
            model = LoadedModel(card, checkpoint, ready.frontend, weights, "cpu", "float32")
            policy = evolve(hooks.encoder_policy(named), **changes)
            compute = Compute()
            stack.callback(compute.close)
            service = EncoderService(hooks, model, policy, compute, generates=generates)
            stack.callback(service.close)
            return Bench(service, model, compute)

        yield open_bench
