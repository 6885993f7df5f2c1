"""What every engine must keep, as tests that its own test suite subclasses.

from asr_core.testing.engine_conformance import EngineConformance

class TestMyEngine(EngineConformance):
    card = MY_ENGINE
    takes = 64                     # requests at once, waiting ones included; None for any number

    @pytest.fixture
    @classmethod
    def engine(cls): ...           # yields a fresh engine that generates by the rule of Context

What the card does not promise must be refused with an EngineMismatchError that names the feature: nothing is skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, islice
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest
from attrs import evolve, frozen

from asr_core.engines.protocol import (
    Engine,
    EngineCard,
    EngineFeature,
    EngineStatistics,
    Finished,
    GeneratedToken,
    GenerationRequest,
    PromptInput,
    needed_features,
)
from asr_core.errors import DeadlineError, EngineError, EngineMismatchError, OverloadedError
from asr_core.testing.rule_model import (
    ENDLESS,
    ENDURES,
    FAULT,
    PROMPT,
    SLOW,
    VOCABULARY,
    Item,
    follow,
    greedy,
    replaying,
    rows_of,
    texts,
)
from asr_core.types import Bias, Force, Rule, Sampling, Suppress, Tokens

T = TypeVar("T")

PATIENCE = 30
"""Seconds after which a test calls what it waits for hung."""

_ids = count()


def ask(*prompt: PromptInput, **fields: Any) -> GenerationRequest:
    """A request with a new id, for 12 tokens after PROMPT unless something else is said."""
    return GenerationRequest(**{"id": f"request-{next(_ids)}", "prompt": prompt or (PROMPT,), "budget": 12, **fields})


def ask_slowly(**fields: Any) -> GenerationRequest:
    """A request that will not end by itself."""
    return ask((SLOW, 1), **{"budget": ENDLESS, **fields})


LETTERS = 52, 33, 39
"""What beams are asked for texts of. The first two are nearly as likely as each other, and whether the third is far
likelier or far less so depends on all that was read: choosing the second may pay later."""

EVERY_TEXT = 31
"""Of up to four LETTERS, the first of which ends them: 15 that it ends, and 16 that the budget does."""


def ask_beam(*prompt: PromptInput, rules: tuple[Rule, ...] = (), **fields: Any) -> GenerationRequest:
    """A request for the best of EVERY_TEXT unless something else is said."""
    among = Suppress(tuple(token for token in range(VOCABULARY) if token not in LETTERS))
    beam = {"sampling": Sampling(beam_size=EVERY_TEXT), "stop": frozenset(LETTERS[:1]), "budget": 4}
    return ask(*prompt, rules=(among, *rules), **{**beam, **fields})


BEAMS: Mapping[str, tuple[PromptInput, ...]] = {
    "not the likeliest first": ((7,),),
    "stopped": ((19,),),
    "a second chance": ((30,),),
    "the likeliest": ((3,),),
}
"""Prompts: the best text of the first three is neither the greedy one nor that with the highest sum."""

FIRST, SECOND, THIRD = (item.id for item in follow(ask(budget=3), greedy) if isinstance(item, GeneratedToken))


@frozen
class Alternate:
    """A custom rule: even and odd tokens in turn, told from what was seen."""

    def apply(self, seen: Sequence[Sequence[int]], logits: Any) -> Any:
        """Forbid every second token of each row."""
        for row, output in enumerate(seen):
            logits[row, (1 + len(output)) % 2 :: 2] = -float("inf")
        return logits


@frozen
class Broken:
    """A custom rule that fails for the second token after 9."""

    def apply(self, seen: Sequence[Sequence[int]], logits: Any) -> Any:
        """Raise for all rows of the call, though one is at fault."""
        if any(len(output) == 2 and output[0] == 9 for output in seen):
            raise ValueError("a rule broke")
        return logits


RULES: dict[str, tuple[Rule, ...]] = {
    "suppress": (Suppress((FIRST, THIRD)),),
    "suppress at begin": (Suppress((FIRST,), at_begin=True),),
    "force": (Force((9, 8, 7)),),
    "bias": (Bias((42, 43), 20.25),),
    "in order": (Bias((42,), 99.0), Suppress((42,)), Force((FIRST,))),
}


def agree(items: Sequence[Item], request: GenerationRequest, *, whole: bool = True) -> None:
    """The items, a beginning of them unless ``whole``, are what the rule says, log-probabilities within 1e-3."""
    chosen = request.sampling.temperature or request.sampling.beam_size > 1
    said = follow(request, replaying(ids_of(items)) if chosen else greedy)
    expected = list(islice(said, None if whole else len(items)))
    assert [_bare(item) for item in items] == [_bare(item) for item in expected]
    for got, wanted in zip(items, expected, strict=True):
        if isinstance(got, GeneratedToken) and isinstance(wanted, GeneratedToken):
            assert got.logprob == pytest.approx(wanted.logprob, abs=1e-3)
            assert got.inspected == pytest.approx(wanted.inspected, abs=1e-3)
            agree_on_attention(got.attention, wanted.attention)


def agree_on_attention(got: Any, wanted: Any) -> None:
    """None for None, else float32 of the same shape and within 1e-3."""
    assert (got is None) == (wanted is None)
    if wanted is not None:
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, atol=1e-3, rtol=0, strict=True)


def _bare(item: Item) -> int | str:
    return item.reason if isinstance(item, Finished) else item.id


def ids_of(items: Iterable[Item]) -> list[int]:
    """The tokens without what surrounds them."""
    return [item.id for item in items if isinstance(item, GeneratedToken)]


def finish(job: Coroutine[Any, Any, T]) -> T:
    """The result of ``job`` on an event loop of its own, or TimeoutError when it hangs."""
    return asyncio.run(asyncio.wait_for(job, PATIENCE))


async def collect(engine: Engine, request: GenerationRequest) -> list[Item]:
    """All items of one stream."""
    return [item async for item in engine.generate(request)]


async def outcome(engine: Engine, request: GenerationRequest) -> tuple[list[Item], Exception | None]:
    """The items of one stream, and the error it ended with."""
    items = []
    try:
        async for item in engine.generate(request):
            items.append(item)
    except Exception as error:
        return items, error
    return items, None


async def leave(stream: AsyncIterator[Item]) -> None:
    """What a caller does who has heard enough."""
    assert isinstance(stream, AsyncGenerator), "a stream can be closed, so generate() returns an async generator"
    await stream.aclose()


async def settled(engine: Engine) -> EngineStatistics:
    """The statistics once nothing waits or runs."""
    return await until(engine, lambda now: now.queued + now.running == 0)


async def until(engine: Engine, condition: Callable[[EngineStatistics], bool]) -> EngineStatistics:
    """The first statistics that meet ``condition``."""
    while not condition(now := engine.statistics()):
        await asyncio.sleep(0.001)
    return now


def ended(now: EngineStatistics) -> int:
    """Every request that was ever admitted and is not there any more."""
    return now.finished + now.failed + now.aborted + now.expired


class EngineConformance:
    """Subclass it, set :attr:`card` and :attr:`takes`, override the fixture ``engine``; ``takes`` is at least 20."""

    card: ClassVar[EngineCard]
    takes: ClassVar[int | None] = None

    @pytest.fixture
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        """A new engine that runs the rule of :class:`Context`, closed after the test."""
        raise NotImplementedError("override the fixture `engine`")

    def promises(self, *features: EngineFeature) -> bool:
        """Whether the card names all of them."""
        return self.card.features.issuperset(features)

    def check(self, engine: Engine, feature: EngineFeature, *requests: GenerationRequest) -> None:
        """Requests, one after the other, that need ``feature``: right if it is promised, else refused."""
        for request in requests:
            if self.promises(feature):
                agree(finish(collect(engine, request)), request)
            else:
                with pytest.raises(EngineMismatchError, match=feature):
                    finish(collect(engine, request))
        assert self.promises(feature) or ended(engine.statistics()) == 0

    @pytest.mark.parametrize("prompt", [PROMPT, (7,), tuple(range(60)) * 5], ids=["short", "one", "long"])
    def test_greedy_tokens_then_one_finished(self, engine: Engine, prompt: Tokens) -> None:
        """The likeliest tokens with their log-probabilities, then ``length``, then nothing."""
        request = ask(prompt)
        agree(finish(collect(engine, request)), request)

    def test_log_probabilities_are_natural(self, engine: Engine) -> None:
        """Worked out by hand: the likeliest of weights 1, exp(-1/2), exp(-1), ... has log(1 - exp(-1/2))."""
        token = finish(collect(engine, ask(budget=1)))[0]
        assert isinstance(token, GeneratedToken)
        assert token.logprob == pytest.approx(np.log(1 - np.exp(-0.5)), abs=1e-3)

    def test_a_stop_token_is_delivered_and_ends(self, engine: Engine) -> None:
        """The last token, though the budget allows more; a stop token of the prompt or of ``given`` ends nothing."""
        request = ask(stop=frozenset({THIRD, PROMPT[-1], SECOND}), given=(FIRST, SECOND))
        items = finish(collect(engine, request))
        assert items[-1] == Finished("stop")
        agree(items, request)

    def test_the_stop_token_wins_over_the_budget(self, engine: Engine) -> None:
        """Where both end a request at the same token."""
        items = finish(collect(engine, ask(budget=3, stop=frozenset({THIRD}))))
        assert (ids_of(items), items[-1]) == ([FIRST, SECOND, THIRD], Finished("stop"))

    def test_given_tokens_are_continued_outside_the_budget(self, engine: Engine) -> None:
        """They are not said again, and what follows is what would have followed."""
        whole = ids_of(finish(collect(engine, ask(budget=12))))
        items = finish(collect(engine, ask(given=tuple(whole[:5]), budget=7)))
        assert (ids_of(items), items[-1]) == (whole[5:], Finished("length"))

    def test_empty_parts_of_a_prompt_are_nothing(self, engine: Engine) -> None:
        """However a prompt is cut, it reads the same."""
        request = ask((), PROMPT[:1], (), PROMPT[1:], ())
        assert ids_of(finish(collect(engine, request))) == ids_of(follow(ask(), greedy))

    @pytest.mark.parametrize("prompt", [((),), ((), ())], ids=["one empty part", "two"])
    def test_nothing_to_read_is_an_error(self, engine: Engine, prompt: tuple[Tokens, ...]) -> None:
        """There is no position whose logits could be the first token's."""
        with pytest.raises(EngineError):
            finish(collect(engine, ask(*prompt)))

    def test_what_was_computed_before_changes_nothing(self, engine: Engine) -> None:
        """Equal, longer, shorter and diverging prompts in turn, as reuse of keys and values would meet them."""
        for prompt in (PROMPT, PROMPT, (*PROMPT, 1, 2), PROMPT[:2], (*PROMPT[:3], 61), (9, *PROMPT), (FIRST,), PROMPT):
            request = ask(prompt)
            agree(finish(collect(engine, request)), request)

    def test_encoder_rows_in_the_prompt(self, engine: Engine) -> None:
        """Between tokens and alone; rows of another key are other rows."""
        heard, other = rows_of(3, 1, 2), rows_of(3, 1, 4)
        prompts = (PROMPT, heard, (4,)), (PROMPT, other, (4,)), (heard,), (other, heard, PROMPT), (PROMPT, heard, (4,))
        self.check(engine, "embeddings", *(ask(*prompt) for prompt in prompts))

    def test_rows_for_cross_attention(self, engine: Engine) -> None:
        """The same prompt hears what its own request brought."""
        heard = rows_of(3, 1, 2), rows_of(3, 1, 4), rows_of(7), rows_of(3, 1, 2)
        self.check(engine, "cross_attention", *(ask(cross=rows) for rows in heard))
        agree(finish(collect(engine, request := ask())), request)

    @pytest.mark.parametrize("given", [(), (9,)], ids=["from the prompt", "after given"])
    def test_a_probe_inspects_the_first_position(self, engine: Engine, given: Tokens) -> None:
        """Log-probabilities over the whole vocabulary, in the order asked for, on the first token only."""
        self.check(engine, "probes", ask(inspect=(3, FIRST, 50), given=given), ask(budget=1, inspect=(0,)))

    def test_a_probe_sees_through_rules(self, engine: Engine) -> None:
        """What rules forbid has the log-probability the model gave it."""
        request = ask(inspect=(FIRST, 50), rules=(Suppress((FIRST,)),))
        self.check(engine, "rules" if self.promises("probes") else "probes", request)

    @pytest.mark.parametrize("given", [(), (9, 8)], ids=["from the prompt", "after given"])
    @pytest.mark.parametrize("prompt", [PROMPT, tuple(range(60)) * 2], ids=["short", "long"])
    def test_attention_of_every_position(self, engine: Engine, prompt: Tokens, given: Tokens) -> None:
        """On the first token only, heads in the order asked for, whatever of the prompt was computed before."""
        heard, heads = rows_of(3, 1, 2), ((1, 3), (0, 0), (1, 2))
        requests = (
            ask(prompt, cross=heard, given=given),
            ask(prompt, cross=heard, given=given, attend=heads),
            ask(prompt, cross=heard, given=given, attend=heads[:1], budget=1),
            ask(prompt, cross=rows_of(7), given=given, attend=heads),
        )
        for request in requests[not self.promises("cross_attention", "attention") :]:
            self.check(engine, "attention", request)

    @pytest.mark.parametrize("given", [(), (9,)], ids=["from the prompt", "after given"])
    @pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
    def test_rules(self, engine: Engine, rules: tuple[Rule, ...], given: Tokens) -> None:
        """They count given tokens as output, and log-probabilities are of what they left."""
        self.check(engine, "rules", ask(rules=rules, given=given))

    def test_rules_that_forbid_everything_fail_their_request(self, engine: Engine) -> None:
        """There is no likeliest among none."""
        with pytest.raises(EngineError):
            finish(collect(engine, ask(rules=(Suppress(tuple(range(VOCABULARY))),))))
        agree(finish(collect(engine, request := ask())), request)

    @pytest.mark.parametrize("given", [(), (9,)], ids=["from the prompt", "after given"])
    def test_custom_rules(self, engine: Engine, given: Tokens) -> None:
        """Applied to what the request's own output is, given tokens first."""
        self.check(engine, "custom_rules", ask(rules=(Alternate(),), given=given))

    def test_equal_custom_rules_share_a_call(self, engine: Engine) -> None:
        """And each row is still told its own output."""
        requests = [ask((n,), rules=(Alternate(),), given=(9,) * (n % 3)) for n in range(6)]
        for request, (items, error) in zip(requests, self.together(engine, requests), strict=True):
            if self.promises("custom_rules"):
                agree(items, request)
            else:
                assert isinstance(error, EngineMismatchError)

    def test_a_seed_is_a_result(self, engine: Engine) -> None:
        """The same drawn tokens alone and in company, with log-probabilities at temperature 1."""
        requests = [ask(sampling=Sampling(temperature=1.5, seed=seed)) for seed in range(6)]
        alone = [finish(collect(engine, request)) for request in requests]
        together = self.together(engine, [evolve(request, id=f"{request.id}-again") for request in requests])
        for request, items, (again, _) in zip(requests, alone, together, strict=True):
            agree(items, request)
            assert ids_of(again) == ids_of(items)
        assert len({tuple(ids_of(items)) for items in alone}) > 1

    def test_a_small_nucleus_is_greedy(self, engine: Engine) -> None:
        """The likeliest token is always in it."""
        items = finish(collect(engine, ask(sampling=Sampling(temperature=1.0, top_p=1e-6))))
        assert ids_of(items) == ids_of(follow(ask(), greedy))

    @pytest.mark.parametrize("given", [(), (33,)], ids=["from the prompt", "after given"])
    @pytest.mark.parametrize("prompt", BEAMS.values(), ids=BEAMS)
    def test_a_beam_as_wide_as_all_texts_finds_the_best(
        self, engine: Engine, prompt: tuple[PromptInput, ...], given: Tokens
    ) -> None:
        """The one of the highest mean log-probability, a stop token included, with its own log-probabilities."""
        self.check_beams(engine, ask_beam(*prompt, given=given))

    @pytest.mark.parametrize("stop", [LETTERS[:1], ()], ids=["stop", "length"])
    def test_a_beam_of_one_token(self, engine: Engine, stop: Tokens) -> None:
        """The likeliest, whether it ends the text or the budget does."""
        self.check_beams(engine, ask_beam((7,), budget=1, stop=frozenset(stop)))

    def test_rules_see_each_text_of_a_beam(self, engine: Engine) -> None:
        """Its own output, given tokens first."""
        for rules in (Suppress(LETTERS[2:], at_begin=True), Bias(LETTERS[1:2], 1.25)), (Alternate(),):
            for given in ((), (33,)):
                self.check_beams(engine, ask_beam((30,), rules=rules, given=given))

    def test_beams_and_others_change_nothing_of_each_other(self, engine: Engine) -> None:
        """Each says what it says alone, whoever shares its steps."""
        wide = [ask_beam(*prompt) for prompt in BEAMS.values()]
        # Over the whole vocabulary no text is likelier than the greedy one, whose tokens are the likeliest there are.
        narrow = [ask((n,), sampling=Sampling(beam_size=n), budget=9) for n in (2, 3, 5)]
        others = [ask((n, 2), budget=4 * n + 1) for n in range(5)]
        requests = [*others[:3], *wide, *narrow, *others[3:]]
        for request, (items, error) in zip(requests, self.together(engine, requests), strict=True):
            if self.lacks(request):
                assert (items, type(error)) == ([], EngineMismatchError)
            else:
                agree(items, request)
                best = follow(request, greedy) if request not in wide else texts(request, LETTERS)[0]
                assert ids_of(items) == ids_of(best)

    def test_what_was_computed_before_changes_no_beam(self, engine: Engine) -> None:
        """Nor does a beam change what comes after it: equal, longer, shorter and diverging prompts in turn."""
        for prompt in (PROMPT, PROMPT, (*PROMPT, 1, 2), PROMPT[:2], (*PROMPT[:3], 61), (30,), PROMPT):
            self.check_beams(engine, ask_beam(prompt))
            agree(finish(collect(engine, request := ask(prompt))), request)

    @pytest.mark.parametrize("way", ["leave", "abort"])
    def test_a_beam_can_be_left(self, engine: Engine, way: str) -> None:
        """Before its texts agree on anything, and what follows is none the worse."""
        request = ask_slowly(sampling=Sampling(beam_size=3))

        async def go() -> EngineStatistics:
            reader = asyncio.create_task(collect(engine, request))
            await until(engine, lambda now: now.queued + now.running == 1)
            await asyncio.sleep(0.1)
            if way == "abort":
                engine.abort(request.id)
                assert not any(isinstance(item, Finished) for item in await reader)
            await _dismiss([reader])
            return await settled(engine)

        if self.promises("beams"):
            assert finish(go()).aborted == 1
        self.check_beams(engine, ask_beam((30,)))

    def test_a_beam_that_fails_fails_alone(self, engine: Engine) -> None:
        """All its texts with it, but none of another's."""
        failing, other = ask((FAULT, 2), sampling=Sampling(beam_size=3), budget=20), ask(budget=20)
        (_, error), (items, _) = self.together(engine, [failing, other])
        assert isinstance(error, EngineError)
        assert isinstance(error, EngineMismatchError) != self.promises("beams")
        agree(items, other)

    def test_a_beam_is_neither_inspected_nor_attended(self, engine: Engine) -> None:
        """Of which of its texts would it be?"""
        beam = Sampling(beam_size=2)
        for request in (ask(sampling=beam, inspect=(3,)), ask(sampling=beam, attend=((0, 1),), cross=rows_of(3, 1))):
            with pytest.raises(EngineError):
                finish(collect(engine, request))
        assert ended(engine.statistics()) == 0

    def lacks(self, request: GenerationRequest) -> frozenset[EngineFeature]:
        """What ``request`` needs and the card does not promise."""
        return needed_features(request) - self.card.features

    def check_beams(self, engine: Engine, *requests: GenerationRequest) -> None:
        """Requests of :func:`ask_beam`, one after the other: the best of all texts, or refused."""
        for request in requests:
            if lacking := self.lacks(request):
                with pytest.raises(EngineMismatchError, match="|".join(lacking)):
                    finish(collect(engine, request))
            else:
                agree(items := finish(collect(engine, request)), request)
                assert ids_of(items) == ids_of(texts(request, LETTERS)[0])

    @pytest.mark.parametrize("seed", range(4))
    def test_sixteen_requests_join_and_leave_at_random(self, engine: Engine, seed: int) -> None:
        """Each gets exactly its own tokens, as long as it stays."""
        draw = np.random.default_rng(seed)
        requests = [self.random_request(draw) for _ in range(16)]
        stays, delays = draw.integers(1, 50, 16).tolist(), draw.uniform(0, 0.05, 16).tolist()

        async def everyone() -> list[list[Item]]:
            return await asyncio.gather(*map(_visit, [engine] * 16, requests, stays, delays))

        for request, stay, items in zip(requests, stays, finish(everyone()), strict=True):
            agree(items, request, whole=False)
            assert len(items) == stay or isinstance(items[-1], Finished)
        assert ended(finish(settled(engine))) == 16

    def random_request(self, draw: np.random.Generator) -> GenerationRequest:
        """Whatever the card promises, from few prompts so that beginnings are shared."""
        start, length, given, stop = map(int, draw.integers((0, 1, 1, 1), (4, 40, 40, 40)))
        prompt = tuple((7 * k + start) % 60 for k in range(length))
        heard = rows_of(*draw.integers(0, 9, 2).tolist())
        cross = heard if self.promises("cross_attention") and draw.random() < 0.5 else None
        request = ask(
            *((prompt, heard, (1,)) if self.promises("embeddings") and draw.random() < 0.5 else (prompt,)),
            cross=cross,
            attend=((1, 2), (0, 3)) if cross and self.promises("attention") and draw.random() < 0.5 else (),
            inspect=(stop, 0) if self.promises("probes") and draw.random() < 0.5 else (),
            sampling=Sampling(temperature=float(draw.choice([0.0, 0.0, 1.0])), seed=stop),
            rules=(Bias((stop,), 1.25),) if self.promises("rules") and draw.random() < 0.5 else (),
            given=(given,) * (given % 3),
            stop=frozenset({stop}),
            budget=int(draw.integers(1, 60)),
        )
        plain = not (request.inspect or request.attend or request.sampling.temperature)
        beam = plain and self.promises("beams") and draw.random() < 0.5
        return evolve(request, sampling=Sampling(beam_size=3)) if beam else request

    def together(
        self, engine: Engine, requests: Sequence[GenerationRequest]
    ) -> list[tuple[list[Item], Exception | None]]:
        """The outcomes of requests that run at the same time."""

        async def everyone() -> list[tuple[list[Item], Exception | None]]:
            return await asyncio.gather(*(outcome(engine, request) for request in requests))

        return finish(everyone())

    def test_a_reader_who_dawdles_gets_every_token(self, engine: Engine) -> None:
        """And holds up nobody."""
        slow, quick = ask(budget=40), ask()

        async def both() -> list[Item]:
            stream = engine.generate(slow)
            items = [await anext(stream)]
            agree(await collect(engine, quick), quick)
            return items + [item async for item in stream]

        agree(finish(both()), slow)

    def test_leaving_the_stream_aborts_within_a_token(self, engine: Engine) -> None:
        """Closed after its first token, a request computes one more at most."""

        async def go() -> EngineStatistics:
            stream = engine.generate(ask_slowly())
            await anext(stream)
            await leave(stream)
            return await _stops(engine)

        assert finish(go()).aborted == 1

    def test_a_cancelled_reader_aborts_within_a_token(self, engine: Engine) -> None:
        """The commonest way to leave: the task that reads is cancelled, before its first token."""

        async def go() -> EngineStatistics:
            reader = asyncio.create_task(collect(engine, ask_slowly()))
            await until(engine, lambda now: now.queued + now.running == 1)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
            return await _stops(engine)

        assert finish(go()).aborted == 1

    @pytest.mark.parametrize("tokens", [0, 1, 3])
    def test_an_abort_ends_the_stream_without_finished(self, engine: Engine, tokens: int) -> None:
        """By id, from another thread, once so many tokens are there; twice is harmless."""
        request = ask_slowly()

        async def go() -> list[Item]:
            reader = asyncio.create_task(collect(engine, request))
            await until(engine, lambda now: now.queued + now.running == 1 and now.tokens >= tokens)
            await asyncio.to_thread(engine.abort, request.id)
            engine.abort(request.id)
            await _stops(engine)
            return await reader

        items = finish(go())
        assert not any(isinstance(item, Finished) for item in items)
        assert len(items) <= engine.statistics().tokens
        assert (engine.statistics().aborted, ended(engine.statistics())) == (1, 1)

    def test_unknown_ids_are_ignored(self, engine: Engine) -> None:
        """Never seen or finished; nothing is counted."""
        request = ask()
        engine.abort("nobody")
        agree(finish(collect(engine, request)), request)
        engine.abort(request.id)
        assert (engine.statistics().aborted, engine.statistics().finished) == (0, 1)

    def test_a_request_that_fails_fails_alone(self, engine: Engine) -> None:
        """Its tokens until then are delivered; the others never learn of it, and the engine is well."""
        fault = [n in (0, 5) for n in range(9)]
        requests = [ask((FAULT if fails else n, 2), budget=20) for n, fails in enumerate(fault)]
        outcomes = self.together(engine, requests)
        for request, fails, (items, error) in zip(requests, fault, outcomes, strict=True):
            assert isinstance(error, EngineError) == fails
            agree(items, evolve(request, budget=ENDURES - 2) if fails else request, whole=not fails)
            assert len(items) == (ENDURES - 2 if fails else 21)
        assert (engine.statistics().failed, engine.statistics().finished, engine.health()) == (2, 7, None)

    def test_a_custom_rule_that_fails_fails_its_request(self, engine: Engine) -> None:
        """After one token, or at once where custom rules are refused; not those that share the call or have no rule."""
        served = self.promises("custom_rules")
        requests = [ask(rules=(Broken(),), given=(first,)) for first in (8, 9, 7)]
        *ruled, (others, _) = self.together(engine, [*requests, other := ask((1, 2))])
        for request, fails, (items, error) in zip(requests, (False, True, False), ruled, strict=True):
            assert isinstance(error, EngineError) == (fails or not served)
            assert isinstance(error, EngineMismatchError) != served or error is None
            agree(items, evolve(request, rules=(), budget=1) if fails else request, whole=served and not fails)
            assert len(items) == (0 if not served else 1 if fails else 13)
        agree(others, other)

    def test_a_deadline_that_has_passed(self, engine: Engine) -> None:
        """Nothing is computed for somebody who has left."""
        items, error = finish(outcome(engine, ask(deadline=time.monotonic() - 1)))
        assert (items, type(error)) == ([], DeadlineError)
        assert (engine.statistics().expired, engine.statistics().tokens) == (1, 0)

    def test_a_deadline_passes_while_it_runs(self, engine: Engine) -> None:
        """The request ends with the error, another goes on."""
        late, patient = ask_slowly(deadline=time.monotonic() + 0.2), ask(deadline=time.monotonic() + 3600)
        (_, error), (items, _) = self.together(engine, [late, patient])
        assert type(error) is DeadlineError
        agree(items, patient)
        now = finish(settled(engine))
        assert (now.expired, now.finished) == (1, 1)

    def test_a_deadline_passes_while_it_waits(self, engine: Engine) -> None:
        """Behind as many others as the engine takes, it need not ever have begun."""

        async def go() -> None:
            readers = [asyncio.create_task(collect(engine, ask_slowly())) for _ in range((self.takes or 24) - 1)]
            await until(engine, lambda now: now.queued + now.running == len(readers))
            with pytest.raises(DeadlineError):
                await collect(engine, ask_slowly(deadline=time.monotonic() + 0.2))
            assert (engine.statistics().expired, ended(engine.statistics())) == (1, 1)
            await _dismiss(readers)

        finish(go())

    def test_no_caller_waits_for_anothers_many(self, engine: Engine) -> None:
        """One who comes last with one short request is served before half of somebody's many are."""
        many = [ask((SLOW, n), budget=10 + 4 * (n % 16), caller="many") for n in range(min(self.takes or 32, 32) - 1)]

        async def go() -> int:
            readers = [asyncio.create_task(collect(engine, request)) for request in many]
            await until(engine, lambda now: ended(now) + now.queued + now.running == len(many))
            await collect(engine, ask((SLOW,), budget=3, caller="few"))
            before = engine.statistics().finished - 1
            await _dismiss(readers)
            return before

        assert finish(go()) <= len(many) // 2

    def test_a_duplicate_id_is_refused(self, engine: Engine) -> None:
        """The first of them goes on."""

        async def go() -> None:
            request = ask_slowly(budget=20)
            first = engine.generate(request)
            await anext(first)
            with pytest.raises(EngineError):
                await collect(engine, request)
            assert len([item async for item in first]) == 20

        finish(go())
        assert ended(engine.statistics()) == engine.statistics().finished == 1

    def test_an_id_is_free_again_when_its_request_ended(self, engine: Engine) -> None:
        """Letting go of the old stream, late, does not touch the new request."""

        async def go() -> list[Item]:
            old, request = engine.generate(ask(id="again")), ask_slowly(id="again", budget=10)
            while not isinstance(await anext(old), Finished):
                continue
            new = engine.generate(request)
            items = [await anext(new)]
            await leave(old)
            return items + [item async for item in new]

        assert finish(go())[-1] == Finished("length")

    def test_as_many_are_taken_as_was_said(self, engine: Engine) -> None:
        """One more is refused and counted; those who wait leave like those who run, and make room."""
        takes = self.takes or 64

        async def go() -> None:
            readers = [asyncio.create_task(collect(engine, ask_slowly())) for _ in range(takes)]
            await until(engine, lambda now: now.queued + now.running == takes)
            if self.takes is not None:
                with pytest.raises(OverloadedError):
                    await collect(engine, ask())
            await _dismiss(readers)
            assert (await settled(engine)).aborted == takes
            agree(await collect(engine, request := ask()), request)

        finish(go())
        assert engine.statistics().refused == (0 if self.takes is None else 1)

    def test_tokens_are_counted_as_delivered(self, engine: Engine) -> None:
        """Of requests that fail, too."""
        outcomes = self.together(engine, [ask(), ask((FAULT, 1)), ask(stop=frozenset({SECOND}))])
        assert [len(ids_of(items)) for items, _ in outcomes] == [12, ENDURES - 2, 2]
        assert engine.statistics().tokens == 12 + ENDURES - 2 + 2

    def test_statistics_add_up(self, engine: Engine) -> None:
        """Every request that was admitted ended in exactly one way."""

        async def leaving() -> None:
            stream = engine.generate(ask_slowly())
            await anext(stream)
            await leave(stream)

        async def go() -> EngineStatistics:
            requests = ask(), ask((1,)), ask((FAULT, 1)), ask_slowly(deadline=time.monotonic() + 0.1)
            await asyncio.gather(leaving(), leaving(), *(outcome(engine, request) for request in requests))
            return await settled(engine)

        now = finish(go())
        assert (now.finished, now.failed, now.aborted, now.expired, now.refused) == (2, 1, 2, 1, 0)

    def test_closing_fails_what_is_there_and_refuses_what_comes(self, engine: Engine) -> None:
        """Twice is harmless, and so is all else that can be asked of a closed engine."""

        async def go() -> None:
            readers = [asyncio.create_task(outcome(engine, ask_slowly())) for _ in range(20)]
            await until(engine, lambda now: now.tokens > 0 and now.queued + now.running == 20)
            await asyncio.to_thread(engine.close)
            errors = [error for _, error in await asyncio.gather(*readers)]
            assert {type(error) for error in errors} == {OverloadedError}
            with pytest.raises(OverloadedError):
                await collect(engine, ask())

        finish(go())
        engine.close()
        engine.abort("nobody")
        assert ended(finish(settled(engine))) == engine.statistics().failed == 20

    def test_two_event_loops_use_one_engine_at_once(self, engine: Engine) -> None:
        """In two threads, as a server and a script in one process would."""

        def use(loop: int) -> None:
            requests = [ask((loop, n), budget=20) for n in range(8)]
            for request, (items, _) in zip(requests, self.together(engine, requests), strict=True):
                agree(items, request)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(use, range(2)))
        assert engine.statistics().finished == 16

    def test_a_loop_that_is_gone_frees_its_request(self, engine: Engine) -> None:
        """Nobody is left to close the stream, so the engine has to notice."""
        loop = asyncio.new_event_loop()
        stream = engine.generate(ask_slowly())
        loop.run_until_complete(asyncio.wait_for(anext(stream), PATIENCE))
        loop.close()
        assert finish(settled(engine)).aborted == 1
        agree(finish(collect(engine, request := ask())), request)


async def _visit(engine: Engine, request: GenerationRequest, stay: int, delay: float) -> list[Item]:
    await asyncio.sleep(delay)
    stream, items = engine.generate(request), []
    async for item in stream:
        items.append(item)
        if len(items) == stay:
            break
    await leave(stream)
    return items


async def _dismiss(readers: Sequence[asyncio.Task[Any]]) -> None:
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


async def _stops(engine: Engine) -> EngineStatistics:
    """The statistics after an abort; one token may have been on its way."""
    before = engine.statistics().tokens
    now = await settled(engine)
    assert now.tokens <= before + 1
    return now
