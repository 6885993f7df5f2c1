"""Sixteen requests that join and leave at random get what each gets alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch
from attrs import frozen

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EncodedRows, Finished, GeneratedToken, GenerationRequest
from asr_core.engines.torch import EngineLimits, TorchEngine

IDS = count()
POSITIONS = 64


@frozen(eq=False)
class Task:
    """A request, what the reference says to it, and after how many tokens its reader leaves."""

    request: GenerationRequest
    expected: tuple[list[int], list[float]]
    stay: int
    delay: float


class Maker:
    """Random requests over few prompts and encoders, so that some begin alike."""

    def __init__(self, subject: Any, seed: int) -> None:
        self.subject, self.random = subject, random.Random(seed)
        self.prompts = [([self.random.randrange(97) for _ in range(40)], cut) for cut in (0, 2, 9)]

    def task(self) -> Task:
        whole, cut = self.random.choice(self.prompts)
        ids = whole[: self.random.choice((1, 2, 5, 17, 36))]
        given = tuple(self.random.randrange(97) for _ in range(self.random.choice((0, 0, 1, 3))))
        budget = self.random.randint(1, 20)
        number = self.random.randrange(4)
        rows = self.subject.encoded(number)
        request = GenerationRequest(
            id=str(next(IDS)),
            prompt=self.parts(ids, cut),
            cross=None if rows is None else EncodedRows(rows, bytes([number])),
            given=given,
            budget=budget,
            caller=self.random.choice("ab"),
        )
        expected = self.subject.greedy([*ids, *given], min(budget, POSITIONS - len(ids) - len(given) + 1), rows)
        return Task(request, expected, self.random.choice((1, 3, 99, 99, 99)), 0.02 * self.random.random())

    def parts(self, ids: list[int], cut: int) -> tuple[Any, ...]:
        first, middle, last = tuple(ids[:cut]), tuple(ids[cut : cut + 4]), tuple(ids[cut + 4 :])
        if self.subject.crossing or not cut:
            return (first, middle, last)
        # An equal key promises equal rows, whatever prompt they stand in.
        return (first, EncodedRows(self.subject.embed(middle), repr(middle).encode()), last)


async def follow(engine: TorchEngine, task: Task) -> list[GeneratedToken]:
    await asyncio.sleep(task.delay)
    tokens: list[GeneratedToken] = []
    stream = engine.generate(task.request)
    async for item in stream:
        if isinstance(item, Finished):
            assert len(tokens) == len(task.expected[0])
            assert item == Finished("length")
            break
        tokens.append(item)
        if len(tokens) == task.stay:
            break
    await stream.aclose()
    return tokens


@pytest.fixture(params=[False, True], ids=["forgetful", "keeping"])
def engine(subject: Any, compute: Compute, request: pytest.FixtureRequest) -> Iterator[TorchEngine]:
    limits = EngineLimits(max_running=5, prefill_chunk=7, capacity=POSITIONS, keep_prefixes=request.param)
    engine = TorchEngine(subject.decoder(), compute, limits)
    yield engine
    engine.close()


@pytest.mark.parametrize("seed", range(3))
def test_requests_that_join_and_leave(
    engine: TorchEngine, subject: Any, seed: int, request: pytest.FixtureRequest
) -> None:
    maker = Maker(subject, seed)
    tasks = [maker.task() for _ in range(16)]

    async def everyone() -> list[list[GeneratedToken]]:
        return await asyncio.gather(*(follow(engine, task) for task in tasks))

    for task, tokens in zip(tasks, asyncio.run(asyncio.wait_for(everyone(), 60)), strict=True):
        ids, logprobs = task.expected
        assert [token.id for token in tokens] == ids[: len(tokens)]
        assert [token.logprob for token in tokens] == pytest.approx(logprobs[: len(tokens)], abs=1e-3)
    now = engine.statistics()
    assert now.rows > now.steps  # they did share forwards
    assert (now.finished + now.aborted, now.failed) == (16, 0)
    assert not now.reused or "keeping" in request.node.name


def test_sixteen_prompts_are_continued_as_by_generate(reader: Any, compute: Compute) -> None:
    """transformers' own loop, one prompt after the other; more prompts than slots, read in chunks."""
    engine = TorchEngine(reader.decoder(), compute, EngineLimits(max_running=5, prefill_chunk=7))
    prompts = [tuple((7 * n + k) % 97 for k in range(1 + 2 * n)) for n in range(16)]

    async def collect(prompt: tuple[int, ...]) -> list[int]:
        request = GenerationRequest(id=str(next(IDS)), prompt=(prompt,), budget=12)
        return [item.id async for item in engine.generate(request) if isinstance(item, GeneratedToken)]

    async def everyone() -> list[list[int]]:
        return await asyncio.gather(*map(collect, prompts))

    generated = asyncio.run(asyncio.wait_for(everyone(), 60))
    engine.close()
    for prompt, tokens in zip(prompts, generated, strict=True):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        expected = reader.model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=12)
        assert tokens == expected[0, len(prompt) :].tolist()
