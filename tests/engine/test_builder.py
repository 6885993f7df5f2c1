"""Two workloads go through one list of steps; whichever fails, what was acquired before it is released in reverse."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from asr_core.engines.compute import Compute
from asr_core.engines.embedded import create_torch_engine
from asr_core.engines.protocol import EncodedRows, Engine, GeneratedToken, GenerationRequest
from asr_core.engines.torch import AsrEngineBuilder, EngineLimits, TextEngineBuilder
from asr_core.errors import EngineError
from asr_core.runtime import builder
from asr_core.runtime.builder import GenerationEngineBuilder
from asr_core.types import Checkpoint, LoadedModel, ModelCard, Weights

STEPS = GenerationEngineBuilder.STEPS


def opened(decoder: Any) -> LoadedModel:
    return LoadedModel(ModelCard("m"), Checkpoint("m", "m", None), None, Weights(None, decoder), "cpu", "float32")


class Watched:
    """Every step leaves a resource behind, and one of them may fail after it has."""

    failing: str | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log: list[str] = []


def _watch(name: str) -> Any:
    def step(self: Any, *args: Any) -> Any:
        result = getattr(super(Watched, self), name)(*args)
        self.log.append(name)
        if name != "scheduler":  # which is given a function to release all, as the engine is what holds them then
            args[-1].callback(self.log.append, f"release {name}")
        if name == self.failing:
            raise ValueError("the step failed")
        return result

    return step


for _name in STEPS:
    setattr(Watched, _name, _watch(_name))


class WatchedText(Watched, TextEngineBuilder):
    pass


class WatchedAsr(Watched, AsrEngineBuilder):
    pass


@pytest.fixture(params=["text", "asr"])
def workload(request: pytest.FixtureRequest, small: Any, listener: Any, compute: Compute) -> Iterator[Any]:
    if request.param == "text":
        yield WatchedText(small.model.model, small.model.lm_head, compute)
    else:
        yield WatchedAsr(opened(listener.decoder()), compute)


@pytest.mark.parametrize("failing", STEPS)
def test_a_step_that_fails_undoes_those_before_it(workload: Any, failing: str) -> None:
    workload.failing = failing
    with pytest.raises(ValueError, match="the step failed") as caught:
        workload.build()
    taken = STEPS[: STEPS.index(failing) + 1]
    released = [f"release {name}" for name in reversed(taken) if name != "scheduler"]
    assert workload.log == [*taken, *released]
    assert caught.value.__notes__ == [f"while building an engine, at step {failing}"]


def test_an_engine_that_is_closed_releases_what_was_built_for_it(workload: Any) -> None:
    engine = workload.build()
    assert workload.log == list(STEPS)
    engine.close()
    engine.close()
    assert workload.log[len(STEPS) :] == [f"release {name}" for name in reversed(STEPS[:-1])]


def test_neither_workload_is_known_to_what_they_share() -> None:
    source = inspect.getsource(builder).replace("asr_core", "")
    assert not re.findall(r"(?<!con)text|audio|speech|asr|sound|word", source, re.IGNORECASE)


def test_both_workloads_go_through_the_same_steps() -> None:
    for workload in (TextEngineBuilder, AsrEngineBuilder):
        assert workload.build is GenerationEngineBuilder.build
        assert workload.STEPS is STEPS


def generate(engine: Engine, **fields: Any) -> list[int]:
    async def collect() -> list[int]:
        request = GenerationRequest(id="one", prompt=((2, 30, 31),), **{"budget": 8, **fields})
        return [item.id async for item in engine.generate(request) if isinstance(item, GeneratedToken)]

    return asyncio.run(asyncio.wait_for(collect(), 30))


def test_plain_text_is_generated(reader: Any, compute: Compute) -> None:
    engine = TextEngineBuilder(reader.model.model, reader.model.lm_head, compute).build()
    assert generate(engine) == generate(engine) == reader.greedy((2, 30, 31), 8)[0]
    assert engine.statistics().reused == 2
    engine.close()


def test_an_opened_model_generates(listener: Any, compute: Compute) -> None:
    rows = EncodedRows(listener.encoded(1), b"rows")
    engine = create_torch_engine(opened(listener.decoder()), compute)
    # As long as the module has positions, whatever was asked for.
    assert generate(engine, cross=rows, budget=10**6) == listener.greedy((2, 30, 31), 62, rows.rows)[0]
    engine.close()


def test_closing_gives_the_memory_back(listener: Any, compute: Compute) -> None:
    decoder = listener.decoder()
    for _ in range(2):
        engine = create_torch_engine(opened(decoder), compute)
        generate(engine, cross=EncodedRows(listener.encoded(1), b"rows"))
        assert any(layer._stored for layer in decoder.memory.layers)
        engine.close()
        assert not any(layer._stored for layer in decoder.memory.layers)


def test_limits_hold_for_what_is_built(small: Any, compute: Compute) -> None:
    limits = EngineLimits(capacity=4)
    engine = TextEngineBuilder(small.model.model, small.model.lm_head, compute, limits).build()
    assert len(generate(engine)) == 2
    engine.close()


@pytest.mark.parametrize("field", ["max_running", "prefill_chunk", "step_timeout_s"])
def test_limits_within_which_nothing_could_run_are_refused(small: Any, compute: Compute, field: str) -> None:
    limits = evolve(EngineLimits(), **{field: 0})
    with pytest.raises(EngineError, match=f"{field}=0"):
        TextEngineBuilder(small.model.model, small.model.lm_head, compute, limits).build()


def test_a_head_that_does_not_fit_is_found_before_the_first_request(small: Any, compute: Compute) -> None:
    import torch

    with pytest.raises(RuntimeError, match="shapes") as caught:
        TextEngineBuilder(small.model.model, torch.nn.Linear(7, 97), compute).build()
    assert caught.value.__notes__ == ["while building an engine, at step warm_up"]


def test_a_model_without_a_decoder_is_refused(compute: Compute) -> None:
    with pytest.raises(EngineError, match="no decoder"):
        create_torch_engine(opened(None), compute)
