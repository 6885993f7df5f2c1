"""What fails, hangs, comes too late or is too much: it ends alone, with a typed error, and is counted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import torch
from attrs import field, frozen

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EncodedRows, Finished, GeneratedToken, GenerationRequest
from asr_core.engines.torch import Row, TorchEngine
from asr_core.engines.torch._memory import SlotLayer
from asr_core.errors import DeadlineError, EngineError, OverloadedError
from asr_core.types import Sampling

from .conftest import running

IDS = count()
PROMPT = (5, 17, 3, 60)


def ask(*prompt: int, **fields: Any) -> GenerationRequest:
    return GenerationRequest(**{"id": str(next(IDS)), "prompt": (prompt or PROMPT,), "budget": 6, **fields})


async def outcome(engine: TorchEngine, request: GenerationRequest) -> Any:
    """The ids, or the error."""
    try:
        return [item.id async for item in engine.generate(request) if isinstance(item, GeneratedToken)]
    except EngineError as error:
        return error


def together(engine: TorchEngine, *requests: GenerationRequest) -> list[Any]:
    async def everyone() -> list[Any]:
        return await asyncio.gather(*(outcome(engine, request) for request in requests))

    return asyncio.run(asyncio.wait_for(everyone(), 30))


class Around:
    """A decoder around another; ``before`` sees every call and may raise, wait or answer itself."""

    def __init__(self, inner: Any, before: Callable[[str, Any], Any]) -> None:
        self.inner, self.before, self.batches = inner, before, []

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        self.before("bind", encoded)
        self.inner.bind(slot, encoded)

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        self.batches.append([row.length for row in rows])
        answer = self.before("extend", rows)
        return self.inner.extend(rows) if answer is None else answer

    def free(self, slot: int) -> None:
        self.before("free", slot)
        self.inner.free(slot)


def nothing(call: str, what: Any) -> None:
    return None


def reads(rows: Sequence[Row], token: int) -> bool:
    return any(token in part for row in rows for part in row.parts)


@contextmanager
def held(engine: TorchEngine) -> Iterator[None]:
    """The compute thread is busy, so that all that is asked meanwhile meets in one turn."""
    gate = threading.Event()
    engine._compute.submit(gate.wait)
    yield
    gate.set()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no"), MemoryError("no")])
def test_the_guilty_is_found_among_many(small: Any, keep: bool, error: BaseException) -> None:
    def before(call: str, what: Any) -> None:
        if call == "extend" and reads(what, 90):
            raise error

    decoder = Around(small.decoder(), before)
    requests = [ask(n, n + 1, n + 2) for n in range(5)]
    with running(decoder, keep_prefixes=keep) as engine:
        *good, bad = together(engine, *requests, ask(90, 1))
        assert good == [small.greedy(request.prompt[0], 6)[0] for request in requests]
        assert isinstance(bad, EngineError)
        assert type(error).__name__ in str(bad)
        assert (engine.statistics().failed, engine.statistics().finished) == (1, 5)
        assert together(engine, ask(*PROMPT))[0] == small.greedy(PROMPT, 6)[0]
    assert max(map(len, decoder.batches)) == 6


def test_what_failed_leaves_nothing_to_reuse(small: Any) -> None:
    """NaN keys of a request are gone with it, even where slots keep what they hold."""
    rows = EncodedRows(torch.full((3, 32), torch.nan), b"bad")
    freed: list[str] = []
    decoder = Around(small.decoder(), lambda call, what: freed.append(call) if call == "free" else None)
    with running(decoder, keep_prefixes=True, max_running=1) as engine:
        bad, again, good = together(engine, *(ask(prompt=(rows, (5,))) for _ in range(2)), ask(*PROMPT))
        assert "NaN" in str(bad)
        assert "NaN" in str(again)
        assert freed == ["free", "free"]
        assert good == small.greedy(PROMPT, 6)[0]
        assert engine.statistics().reused == 0


def test_an_encoder_that_cannot_be_heard_fails_its_request(listener: Any) -> None:
    good, bad = EncodedRows(listener.encoded(1), b"good"), EncodedRows(torch.zeros(4, 7), b"bad")
    with running(listener.decoder(), keep_prefixes=True) as engine:
        heard, error = together(engine, ask(2, 30, cross=good), ask(2, 30, cross=bad))
        assert heard == listener.greedy((2, 30), 6, good.rows)[0]
        assert isinstance(error, EngineError)


def test_one_who_hears_nothing_does_not_hear_the_one_before(listener: Any) -> None:
    with running(listener.decoder(), keep_prefixes=True, max_running=1) as engine:
        rows = EncodedRows(listener.encoded(1), b"rows")
        assert together(engine, ask(2, 30, cross=rows))[0] == listener.greedy((2, 30), 6, rows.rows)[0]
        assert "never bound" in str(together(engine, ask(2, 30))[0])


def test_an_equal_beginning_is_found_in_memory(listener: Any) -> None:
    rows, other = (EncodedRows(listener.encoded(number), bytes([number])) for number in (1, 3))
    expected = listener.greedy((2, 30, 31), 6, rows.rows)[0]
    with running(listener.decoder(), keep_prefixes=True, max_running=1) as engine:
        assert together(engine, ask(2, 30, 31, cross=rows))[0] == expected
        assert (engine.statistics().prefilled, engine.statistics().reused) == (3, 0)
        assert together(engine, ask(2, 30, 31, cross=rows))[0] == expected
        assert (engine.statistics().prefilled, engine.statistics().reused) == (4, 2)
        assert together(engine, ask(2, 30, 31, cross=other))[0] == listener.greedy((2, 30, 31), 6, other.rows)[0]
        assert (engine.statistics().prefilled, engine.statistics().reused) == (7, 2)


def test_a_prompt_beyond_the_capacity_is_refused_before_anything_is_computed(small: Any) -> None:
    decoder = Around(small.decoder(), nothing)
    with running(decoder, capacity=8) as engine:
        (error,) = together(engine, ask(*range(9)))
        assert str(error) == "the prompt has 9 positions, and the engine can hold 8"
        assert not decoder.batches
        (error,) = together(engine, ask(prompt=((), ())))
        assert "empty" in str(error)
        assert engine.statistics().failed == 0  # never admitted


@pytest.mark.parametrize("length", [1, 5, 8])
def test_a_budget_ends_with_the_capacity(small: Any, length: int) -> None:
    """The last token is not read again, so as many fit as positions are left, and one more."""
    prompt = tuple(range(length))

    async def items(engine: TorchEngine) -> list[Any]:
        return [item async for item in engine.generate(ask(*prompt, budget=100))]

    with running(small.decoder(capacity=8), capacity=8) as engine:
        *tokens, last = asyncio.run(items(engine))
    assert last == Finished("length")
    assert [token.id for token in tokens] == small.greedy(prompt, 9 - length)[0]


def test_more_than_can_wait_is_refused_and_counted(small: Any) -> None:
    async def go(engine: TorchEngine) -> None:
        with held(engine):
            readers = [asyncio.create_task(outcome(engine, ask())) for _ in range(5)]
            while engine.statistics().queued < 5:
                await asyncio.sleep(0)
            assert isinstance(await outcome(engine, ask()), OverloadedError)
        assert await asyncio.gather(*readers) == [small.greedy(PROMPT, 6)[0]] * 5

    with running(small.decoder(), max_running=2, max_queued=3) as engine:
        asyncio.run(go(engine))
        assert (engine.statistics().refused, engine.statistics().finished) == (1, 5)


def test_one_who_waits_can_leave(small: Any) -> None:
    async def go(engine: TorchEngine) -> None:
        first = engine.generate(ask(budget=500))
        await anext(first)
        waiting = ask()
        reader = asyncio.create_task(outcome(engine, waiting))
        while not engine.statistics().queued:
            await asyncio.sleep(0)
        engine.abort(waiting.id)
        assert (engine.statistics().queued, engine.statistics().aborted) == (0, 1)
        assert await reader == []
        await first.aclose()

    with running(small.decoder(), max_running=1) as engine:
        asyncio.run(go(engine))


def test_a_deadline_passes_while_it_waits(small: Any) -> None:
    async def go(engine: TorchEngine) -> None:
        first = engine.generate(ask(budget=2000))
        await anext(first)
        error = await outcome(engine, ask(deadline=time.monotonic() + 0.05))
        assert isinstance(error, DeadlineError)
        assert (engine.statistics().expired, engine.statistics().queued) == (1, 0)
        await first.aclose()

    with running(small.decoder(), max_running=1) as engine:
        asyncio.run(go(engine))


def test_a_hung_step_is_told_and_recovered_from(small: Any) -> None:
    """Deadlines are kept meanwhile, and the slot of who left is free once the step returns."""
    gate, entered = threading.Event(), threading.Event()

    def before(call: str, what: Any) -> None:
        if call == "extend" and reads(what, 90):
            entered.set()
            gate.wait()

    async def go(engine: TorchEngine) -> None:
        late = asyncio.create_task(outcome(engine, ask(90, 1, deadline=time.monotonic() + 0.05)))
        await asyncio.to_thread(entered.wait)
        assert isinstance(await late, DeadlineError)
        while engine.health() is None:
            await asyncio.sleep(0.001)
        assert "a step has been running" in str(engine.health())
        gate.set()
        assert await outcome(engine, ask()) == small.greedy(PROMPT, 6)[0]
        while engine.health() is not None:  # the turn that delivered the last token may not have returned
            await asyncio.sleep(0.001)

    with running(Around(small.decoder(), before), max_running=1, step_timeout_s=0.01) as engine:
        asyncio.run(go(engine))
        assert (engine.statistics().expired, engine.statistics().finished) == (1, 1)


def test_an_engine_that_cannot_free_goes_on(small: Any) -> None:
    """An error in letting go after an abort is nobody's but the log's."""

    def before(call: str, what: Any) -> None:
        if call == "free":
            raise RuntimeError("cannot let go")

    async def go(engine: TorchEngine) -> None:
        stream = engine.generate(ask(budget=1000))
        await anext(stream)
        await stream.aclose()
        while engine.statistics().running:
            await asyncio.sleep(0.001)

    decoder = Around(small.decoder(), before)
    with running(decoder) as engine:
        asyncio.run(go(engine))
        decoder.before = nothing
        assert together(engine, ask())[0] == small.greedy(PROMPT, 6)[0]


def test_a_decoder_that_answers_too_little_is_an_error(small: Any) -> None:
    with running(
        Around(small.decoder(), lambda call, what: torch.zeros(0, 97) if call == "extend" else None)
    ) as engine:
        errors = together(engine, ask(), ask())
        assert all(isinstance(error, EngineError) for error in errors)
        assert engine.statistics().failed == 2


@pytest.mark.parametrize("part", ["admit", "plan"])
def test_a_turn_that_fails_as_a_whole_fails_its_requests(
    small: Any, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A fault of the engine's own is heard of, and the next turn comes."""
    with running(small.decoder()) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine._scheduler, part, lambda: 1 / 0)
            assert "ZeroDivisionError" in str(together(engine, ask())[0])
        assert together(engine, ask())[0] == small.greedy(PROMPT, 6)[0]


def test_turns_that_are_dropped_end_their_requests(small: Any) -> None:
    """The compute thread closes while another model's job holds it up."""

    async def go() -> Any:
        compute, gate = Compute(), threading.Event()
        engine = TorchEngine(small.decoder(), compute)
        compute.submit(gate.wait)
        reader = asyncio.create_task(outcome(engine, ask()))
        while not engine.statistics().queued:
            await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(compute.close))
        result = await asyncio.wait_for(reader, 30)
        gate.set()
        await closing
        engine.close()
        return result

    assert isinstance(asyncio.run(go()), OverloadedError)


@frozen
class Recording:
    """A custom rule that counts; equal to others with the same ``forbidden``, unhashable on purpose."""

    forbidden: list[int]
    calls: list[int] = field(factory=list, eq=False)

    def apply(self, seen: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(seen))
        logits[:, self.forbidden] = -torch.inf
        return logits


def test_rows_with_equal_rules_share_a_call(small: Any) -> None:
    rules = [Recording([n // 4]) for n in range(8)]

    async def go(engine: TorchEngine) -> None:
        with held(engine):
            readers = [asyncio.create_task(outcome(engine, ask(rules=(rule,)))) for rule in rules]
            while engine.statistics().queued < 8:
                await asyncio.sleep(0)
        await asyncio.gather(*readers)

    with running(small.decoder()) as engine:
        asyncio.run(go(engine))
    assert [rule.calls for rule in rules] == [[4] * 6, [], [], [], [4] * 6, [], [], []]


@frozen
class Picky:
    """A custom rule that cannot bear one token, after it has touched every row."""

    def apply(self, seen: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
        logits[:, 0] = -torch.inf
        if any(output and output[0] == 90 for output in seen):
            logits[:] = torch.nan
            raise ValueError("not this one")
        return logits


def test_a_rule_that_fails_fails_one_row_of_its_group(small: Any) -> None:
    with running(small.decoder()) as engine:
        alone = together(engine, ask(rules=(Picky(),), given=(8,)))[0]
        good, bad = together(engine, ask(rules=(Picky(),), given=(8,)), ask(rules=(Picky(),), given=(90,)))
    assert good == alone
    assert "not this one" in str(bad)


def test_seeds_draw_the_same_in_company(small: Any) -> None:
    from asr_core.types import Sampling

    requests = [ask(sampling=Sampling(temperature=1.0, top_p=0.9, seed=seed), budget=9) for seed in range(8)]
    again = [ask(sampling=request.sampling, budget=9) for request in requests]
    with running(small.decoder()) as engine:
        alone = [together(engine, request)[0] for request in requests]
        assert together(engine, *again) == alone
    assert len(set(map(tuple, alone))) > 4


@frozen
class Shortened:
    """A custom rule that loses a row."""

    def apply(self, seen: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
        return logits[:0]


@pytest.mark.parametrize("fields", [{"inspect": (999,)}, {"rules": (Shortened(),)}], ids=["probe", "rule"])
def test_what_a_request_asks_amiss_fails_nobody_else(small: Any, fields: dict[str, Any]) -> None:
    with running(small.decoder()) as engine:
        good, bad = together(engine, ask(*PROMPT), ask(1, 2, **fields))
        assert good == small.greedy(PROMPT, 6)[0]
        assert isinstance(bad, EngineError)
        assert (engine.statistics().failed, engine.statistics().finished) == (1, 1)


def test_no_temperature_is_too_small_to_draw_at(small: Any) -> None:
    cold, warm = ({"sampling": Sampling(temperature=t, seed=5)} for t in (1e-40, 1.0))
    with running(small.decoder()) as engine:
        alone = together(engine, ask(*PROMPT, **warm))
        assert together(engine, ask(*PROMPT, **cold), ask(*PROMPT, **warm)) == [small.greedy(PROMPT, 6)[0], *alone]


def test_memory_that_runs_out_in_a_move_moves_nothing(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slots; stepping the outer two moves one of them, and the second layer has no room for the copy."""
    decoder = small.decoder()
    with torch.no_grad():
        decoder.extend([Row(slot, 0, ((slot + 1, 5, 9),)) for slot in range(3)])
        exchanged, calls = SlotLayer.exchanged, count()

        def scarce(layer: SlotLayer, one: int, other: int) -> list[torch.Tensor]:
            if next(calls) == 1:
                raise torch.OutOfMemoryError("no room")
            return exchanged(layer, one, other)

        monkeypatch.setattr(SlotLayer, "exchanged", scarce)
        with pytest.raises(torch.OutOfMemoryError):
            decoder.extend([Row(0, 3, ((7,),)), Row(2, 3, ((7,),))])
        for slot in range(3):
            logits = decoder.extend([Row(slot, 3, ((7,),))])[0]
            torch.testing.assert_close(logits, small.logits((slot + 1, 5, 9, 7))[-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("late", [False, True], ids=["before", "while"])
def test_resources_are_released_though_the_compute_thread_closed_first(small: Any, late: bool) -> None:
    released: list[str] = []
    compute = Compute()
    engine = TorchEngine(small.decoder(), compute, release=lambda: released.append("memory"))
    assert together(engine, ask()) == [small.greedy(PROMPT, 6)[0]]
    if late:
        gate = threading.Event()
        compute.submit(gate.wait)
        closing = threading.Thread(target=engine.close)
        closing.start()
        while not engine._closed:
            time.sleep(0.001)
        stopping = threading.Thread(target=compute.close)
        stopping.start()
        closing.join(30)
        gate.set()
        stopping.join(30)
    else:
        compute.close()
        assert isinstance(together(engine, ask())[0], OverloadedError)
        engine.close()
    engine.close()
    assert released == ["memory"]
