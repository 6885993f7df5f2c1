"""The suite finds the faults it is there for, in engines that are wrong in one way each; the rule by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from asr_core.engines.protocol import Finished, GeneratedToken, GenerationRequest, PromptInput
from asr_core.testing import engine_conformance, remote_engine
from asr_core.testing.engine_conformance import (
    BEAMS,
    EVERY_TEXT,
    LETTERS,
    RULES,
    EngineConformance,
    agree_on_attention,
    ask,
    ask_beam,
    ids_of,
)
from asr_core.testing.remote_engine import CARD, RemoteEngine, serving
from asr_core.testing.rule_model import FAULT, Context, drawing, follow, greedy, rows_of, texts
from asr_core.types import Sampling

Item = GeneratedToken | Finished
NUMBERS = count()


class Suite(EngineConformance):
    card = CARD
    takes = 24


class Altered(RemoteEngine):
    """Hears something else than it was asked, or says something else than it should."""

    def hears(self, request: GenerationRequest) -> GenerationRequest:
        return request

    def says(self, request: GenerationRequest, item: Item) -> list[Item]:
        return [item]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Item, None]:
        async with aclosing(super().generate(self.hears(request))) as stream:
            async for item in stream:
                for said in self.says(request, item):
                    yield said


class BaseTwo(Altered):
    def says(self, request: GenerationRequest, item: Item) -> list[Item]:
        return [item if isinstance(item, Finished) else evolve(item, logprob=item.logprob / 0.6931)]


class SwallowsStop(Altered):
    def says(self, request: GenerationRequest, item: Item) -> list[Item]:
        return [] if isinstance(item, GeneratedToken) and item.id in request.stop else [item]


class NeverFinishes(Altered):
    def says(self, request: GenerationRequest, item: Item) -> list[Item]:
        return [] if isinstance(item, Finished) else [item]


class MixesUp(Altered):
    """Says a wrong token where it turns from one request to another."""

    last = ""

    def says(self, request: GenerationRequest, item: Item) -> list[Item]:
        turned, self.last = self.last not in ("", request.id), request.id
        return [evolve(item, id=item.id ^ 1) if turned and isinstance(item, GeneratedToken) else item]


class InspectsAlways(Altered):
    def says(self, request: GenerationRequest, item: Item) -> list[Item]:
        inspected = (-1.0,) * len(request.inspect)
        return [item if isinstance(item, Finished) or item.inspected else evolve(item, inspected=inspected)]


class AttendsUnasked(Altered):
    def says(self, request: GenerationRequest, item: Item) -> list[Item]:
        nothing = np.zeros((0, len(request.prompt), 0), np.float32)
        return [item if isinstance(item, Finished) else evolve(item, attention=nothing)]


class CountsGiven(Altered):
    def hears(self, request: GenerationRequest) -> GenerationRequest:
        return evolve(request, budget=request.budget - len(request.given))


class NeverLate(Altered):
    def hears(self, request: GenerationRequest) -> GenerationRequest:
        return evolve(request, deadline=None)


class OwnSeed(Altered):
    def hears(self, request: GenerationRequest) -> GenerationRequest:
        return evolve(request, sampling=evolve(request.sampling, seed=next(NUMBERS)))


class NoRules(Altered):
    def hears(self, request: GenerationRequest) -> GenerationRequest:
        return evolve(request, rules=())


class OwnIds(Altered):
    def hears(self, request: GenerationRequest) -> GenerationRequest:
        return evolve(request, id=f"{request.id}.{next(NUMBERS)}")


class AbortsById(RemoteEngine):
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Item, None]:
        try:
            async with aclosing(super().generate(request)) as stream:
                async for item in stream:
                    yield item
        finally:
            self.abort(request.id)


class Deaf(RemoteEngine):
    def abort(self, request_id: str) -> None:
        return


class KeepsOn(RemoteEngine):
    def _end(self, run: remote_engine._Run, item: remote_engine.Item) -> None:
        if item is not None:
            super()._end(run, item)


class Miscounts(RemoteEngine):
    def _count(self, name: str) -> None:
        super()._count("finished" if name == "aborted" else name)


class Insatiable(RemoteEngine):
    def __init__(self, host: str, port: int, *, takes: int) -> None:
        super().__init__(host, port, takes=10 * takes)


class Contagious(RemoteEngine):
    def _end(self, run: remote_engine._Run, item: remote_engine.Item) -> None:
        super()._end(run, item)
        if isinstance(item, Exception):
            self.close()


class StaysOpen(RemoteEngine):
    def close(self) -> None:
        return


class LosesItsLoop(RemoteEngine):
    def _deliver(self, run: remote_engine._Run, token: GeneratedToken) -> None:
        run.send(token)


FAULTS: dict[type[RemoteEngine], Callable[[Suite, RemoteEngine], None]] = {
    BaseTwo: Suite.test_log_probabilities_are_natural,
    SwallowsStop: Suite.test_a_stop_token_is_delivered_and_ends,
    NeverFinishes: lambda suite, engine: suite.test_greedy_tokens_then_one_finished(engine, (7,)),
    MixesUp: lambda suite, engine: suite.test_sixteen_requests_join_and_leave_at_random(engine, 0),
    InspectsAlways: lambda suite, engine: suite.test_a_probe_inspects_the_first_position(engine, ()),
    AttendsUnasked: lambda suite, engine: suite.test_greedy_tokens_then_one_finished(engine, (7,)),
    CountsGiven: Suite.test_given_tokens_are_continued_outside_the_budget,
    NeverLate: Suite.test_a_deadline_passes_while_it_runs,
    OwnSeed: Suite.test_a_seed_is_a_result,
    NoRules: lambda suite, engine: suite.test_rules(engine, RULES["bias"], ()),
    OwnIds: Suite.test_a_duplicate_id_is_refused,
    AbortsById: Suite.test_an_id_is_free_again_when_its_request_ended,
    Deaf: lambda suite, engine: suite.test_an_abort_ends_the_stream_without_finished(engine, 1),
    KeepsOn: Suite.test_leaving_the_stream_aborts_within_a_token,
    Miscounts: Suite.test_a_cancelled_reader_aborts_within_a_token,
    Insatiable: Suite.test_as_many_are_taken_as_was_said,
    Contagious: Suite.test_a_request_that_fails_fails_alone,
    StaysOpen: Suite.test_closing_fails_what_is_there_and_refuses_what_comes,
    LosesItsLoop: Suite.test_a_loop_that_is_gone_frees_its_request,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found(fault: type[RemoteEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_conformance, "PATIENCE", 1)
    with serving() as address:
        engine = fault(*address, takes=Suite.takes)
        with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
            FAULTS[fault](Suite(), engine)
        RemoteEngine.close(engine)


def test_a_feature_nobody_promised_must_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_engine, "needed_features", lambda request: frozenset())
    with serving() as address:
        engine = RemoteEngine(*address)
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            Suite().test_rows_for_cross_attention(engine)
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            Suite().test_custom_rules(engine, ())
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            Suite().test_a_beam_of_one_token(engine, ())


@pytest.mark.parametrize(("name", "prompt"), BEAMS.items(), ids=BEAMS)
def test_the_cases_for_beams_tell_what_they_should(name: str, prompt: tuple[PromptInput, ...]) -> None:
    """One text is clearly the best, and but for the last case it is found neither greedily nor by the sum."""
    ranked = texts(request := ask_beam(*prompt), LETTERS)
    sums = [sum(item.logprob for item in items if isinstance(item, GeneratedToken)) for items in ranked]
    assert len(ranked) == EVERY_TEXT
    assert sums[0] / len(ids_of(ranked[0])) > sums[1] / len(ids_of(ranked[1])) + 0.05
    assert (ids_of(follow(request, greedy)) == ids_of(ranked[0])) == (name == "the likeliest")
    assert (max(sums) == sums[0]) == (name == "the likeliest")


def test_the_rule_by_hand() -> None:
    # 33 * 0 + 2 + 1 = 3; then 33 * 3 + 3 + 1 = 103 and 103 % 64 = 39; then 33 * 103 + 39 + 1 = 3439 and 3439 % 64 = 47.
    assert ids_of(follow(ask((2,), budget=3), greedy)) == [3, 39, 47]
    assert ids_of(follow(ask((2,), budget=2, given=(3,)), greedy)) == [39, 47]


def test_the_rule_breaks_where_it_says() -> None:
    context = Context()
    context.read((FAULT, 1, 2, 3, 4), 0)
    with pytest.raises(ValueError, match="fault"):
        context.read((5,), 5)
    with pytest.raises(ValueError, match="nothing was read"):
        Context().read((1,), 1)


def test_the_attention_by_hand() -> None:
    # Values 64 + 1 and 64 + 4: 0 -> 66 -> 33 * 66 + 69 = 2247; after token 2: 33 * 2247 + 3 = 74154 - 65521 = 8633.
    context = Context()
    context.hear(rows_of(1, 4).rows)
    context.read((2,), 0)
    # 8633 + 31 + 2 * 17 = 8698; 8698 + 65 * 65 = 12923 = 133 * 97 + 22; 8698 + 68 * 68 = 13322 = 137 * 97 + 33.
    assert context.attention([(1, 2)]).tolist() == [[[22 / 8, 33 / 8]]]
    assert context.attention([(1, 2)], 1).shape == (1, 0, 2)


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (None, np.zeros((1, 2, 3), np.float32)),
        (np.zeros((1, 2, 3)), np.zeros((1, 2, 3), np.float32)),
        (np.zeros((1, 2, 1), np.float32), np.zeros((1, 2, 3), np.float32)),
        (np.full((1, 2, 3), 0.01, np.float32), np.zeros((1, 2, 3), np.float32)),
    ],
    ids=["none", "float64", "shape", "values"],
)
def test_other_attention_is_found(got: Any, wanted: Any) -> None:
    with pytest.raises(AssertionError):
        agree_on_attention(got, wanted)


def test_draws_follow_the_temperature() -> None:
    def first(seed: int, temperature: float) -> int:
        sampling = Sampling(temperature=temperature, seed=seed)
        return ids_of(follow(ask(budget=1, sampling=sampling), drawing(sampling)))[0]

    likeliest = ids_of(follow(ask(budget=1), greedy))[0]
    share = sum(first(seed, 1.0) == likeliest for seed in range(400)) / 400
    # The likeliest has 1 - exp(-1/2) = 0.393; four standard deviations of 400 draws are 0.098.
    assert abs(share - 0.393) < 0.098
    assert {first(seed, 0.01) for seed in range(20)} == {likeliest}
