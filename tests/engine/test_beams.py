"""Beams against a search that forwards every text whole and alone, and what they leave in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
import torch
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_core.engines.protocol import EncodedRows, GeneratedToken, GenerationRequest
from asr_core.engines.torch import TorchEngine
from asr_core.engines.torch._beams import Beams
from asr_core.errors import EngineError
from asr_core.types import Bias, Sampling, Suppress

from .conftest import running

IDS = count()
PROMPTS = ((2, 30, 31), (5,), tuple(range(40, 63)))
STOP = frozenset({11, 12, 13, 80, 81, 82, 83, 84, 85})
LIKED = (20, 21, 22)

Text = tuple[list[int], list[float]]
"""Tokens and their log-probabilities."""

Follow = Callable[[Sequence[int]], torch.Tensor]
"""From a text to log-probabilities of shape [vocabulary]."""


def search(follow: Follow, width: int, budget: int, stop: frozenset[int]) -> Text | None:
    """What :class:`Beams` promises, slowly: all of the vocabulary after each text; None if nothing may be said."""
    live: list[Text] = [([], [])]
    ended: list[Text] = []
    while live and len(ended) < width and len(live[0][0]) < budget:
        longer = [
            ([*tokens, token], [*logprobs, logprob])
            for tokens, logprobs in live
            for token, logprob in enumerate(follow(tokens).tolist())
            if logprob > -torch.inf
        ]
        if not longer:
            return None
        live = []
        for text in sorted(longer, key=lambda text: sum(text[1]), reverse=True):
            (ended if text[0][-1] in stop else live).append(text)
            if len(live) == width:
                break
    return max(ended if len(ended) >= width else ended + live, key=lambda text: sum(text[1]) / len(text[1]))


# In an engine


def ask(prompt: tuple[Any, ...], **fields: Any) -> GenerationRequest:
    return GenerationRequest(id=str(next(IDS)), prompt=prompt, **fields)


@frozen(eq=False)
class Case:
    """A request and all that the reference needs to know of it."""

    prompt: tuple[int, ...]
    width: int
    budget: int = 10
    number: int = 1
    given: tuple[int, ...] = ()
    rules: tuple[Any, ...] = (Suppress((3, 4), at_begin=True), Bias(LIKED, 1.5))

    def request(self, subject: Any) -> GenerationRequest:
        rows = subject.encoded(self.number)
        return ask(
            (self.prompt,),
            cross=None if rows is None else EncodedRows(rows, bytes([self.number])),
            given=self.given,
            budget=self.budget,
            stop=STOP,
            rules=self.rules,
            sampling=Sampling(beam_size=self.width),
        )

    def expected(self, subject: Any) -> Text:
        def follow(tokens: Sequence[int]) -> torch.Tensor:
            logits = subject.logits([*self.prompt, *self.given, *tokens], subject.encoded(self.number))[-1]
            logits[list(LIKED)] += 1.5
            if not self.given and not tokens:
                logits[[3, 4]] = -torch.inf
            return logits.log_softmax(-1)

        found = search(follow, self.width, self.budget, STOP)
        assert found is not None
        return found


CASES = [
    *(Case(prompt, width) for prompt in PROMPTS for width in (1, 2, 3, 5)),
    Case(PROMPTS[0], 4, given=(7, 8)),
    Case(PROMPTS[1], 3, number=3, budget=1),
    Case(PROMPTS[2], 5, number=4, budget=25),
]


async def outcome(engine: TorchEngine, request: GenerationRequest) -> Text | EngineError:
    try:
        tokens = [item async for item in engine.generate(request) if isinstance(item, GeneratedToken)]
    except EngineError as error:
        return error
    return [token.id for token in tokens], [token.logprob for token in tokens]


def together(engine: TorchEngine, *requests: GenerationRequest) -> list[Any]:
    async def everyone() -> list[Any]:
        return await asyncio.gather(*(outcome(engine, request) for request in requests))

    return asyncio.run(asyncio.wait_for(everyone(), 60))


def agree(text: Any, expected: Text) -> None:
    assert text[0] == expected[0]
    assert text[1] == pytest.approx(expected[1], abs=1e-4)


@pytest.mark.parametrize("limits", [{"max_running": 20}, {"max_running": 3, "prefill_chunk": 5, "keep_prefixes": True}])
def test_beams_of_all_widths_in_one_engine(subject: Any, limits: dict[str, Any]) -> None:
    expected = [case.expected(subject) for case in CASES]
    with running(subject.decoder(), **limits) as engine:
        for text, wanted in zip(together(engine, *(case.request(subject) for case in CASES)), expected, strict=True):
            agree(text, wanted)
        now = engine.statistics()
        assert now.rows > now.steps  # they did share forwards
        assert now.reused > 0 or "keep_prefixes" not in limits


def test_a_beam_is_not_greedy(subject: Any) -> None:
    """Else the rest would tell little."""
    for width in (2, 5):
        found = [(Case(prompt, 1).expected(subject), Case(prompt, width).expected(subject)) for prompt in PROMPTS]
        assert any(one[0] != many[0] for one, many in found)


def test_the_nan_of_a_neighbour_disturbs_no_beam(small: Any) -> None:
    rows = EncodedRows(torch.full((3, 32), torch.nan), b"bad")
    case, sampling = Case(PROMPTS[0], 4), Sampling(beam_size=4)
    with running(small.decoder(), max_running=3, keep_prefixes=True) as engine:
        for _ in range(2):
            bad = [ask((rows, (5,)), budget=6, sampling=sampling, rules=case.rules) for _ in range(2)]
            one, text, other = together(engine, bad[0], case.request(small), bad[1])
            agree(text, case.expected(small))
            assert "NaN" in str(one)
            assert "NaN" in str(other)


def test_places_are_taken_again(small: Any) -> None:
    """Three texts of 150 tokens lie in the room of one and what they differ by."""
    decoder, request = small.decoder(), ask(PROMPTS[:1], budget=150, sampling=Sampling(beam_size=3))
    with running(decoder, keep_prefixes=True) as engine:
        ((tokens, _),) = together(engine, request)
        assert len(tokens) == 150
        assert decoder.memory.layers[0]._stored[0].shape[2] < 256


def test_a_beam_is_bounded_by_the_capacity_of_its_texts(small: Any) -> None:
    case = Case(PROMPTS[0], 5, budget=4)
    request = Case(PROMPTS[0], 5, budget=100).request(small)
    with running(small.decoder(capacity=6), capacity=6) as engine:
        agree(together(engine, request)[0], case.expected(small))


def test_only_the_likeliest_can_be_searched_for() -> None:
    with pytest.raises(ValueError, match="temperature 0"):
        Sampling(temperature=0.5, beam_size=2)
    assert Sampling(temperature=0.5, beam_size=1).temperature


# Alone


class Table:
    """Log-probabilities that depend on the whole text; some tokens are forbidden after some."""

    def __init__(self, seed: int, vocabulary: int, forbidden: float) -> None:
        self.seed, self.vocabulary, self.forbidden = seed, vocabulary, forbidden

    def __call__(self, tokens: Sequence[int]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, *tokens)) % 2**31)
        scores = 2 * torch.randn(self.vocabulary, generator=generator)
        scores[torch.rand(self.vocabulary, generator=generator) < self.forbidden] = -torch.inf
        return scores.log_softmax(-1).nan_to_num(-torch.inf, neginf=-torch.inf)


class Memory:
    """A slot as a module sees it: for each place, the text that ends there."""

    def __init__(self, prefix: int) -> None:
        self.prefix = tuple(range(-prefix, 0))
        self.paths = {place: self.prefix[: place + 1] for place in range(prefix)}
        self.most = 0

    def read(self, beams: Beams) -> None:
        """Put the last tokens where the beams say, after a look at what they follow."""
        branches = beams.branches
        followed = [set(row.nonzero()[:, 0].tolist()) for row in branches.follows]
        for text, places in zip(beams.live, followed, strict=True):
            before = (*self.prefix, *text.tokens[:-1])
            seen = sorted((self.paths[place] for place in places), key=len)
            assert seen == [before[: length + 1] for length in range(len(before))]
        assert len(set(branches.places)) == len(branches.places) == len(beams.live)
        needed = set().union(*followed)
        assert not needed.intersection(branches.places)
        # No more is ever in use than what the texts needed at their most different.
        self.most = max(self.most, len(needed) + len(branches.places))
        assert max(branches.places) < self.most
        paths = ((*self.prefix, *text.tokens) for text in beams.live)
        self.paths.update(zip(branches.places, paths, strict=True))


@settings(max_examples=200, deadline=None)
@given(
    st.builds(Table, st.integers(0, 10**6), st.integers(3, 9), st.sampled_from((0.0, 0.0, 0.3, 0.7))),
    st.integers(1, 6),
    st.integers(1, 12),
    st.frozensets(st.integers(0, 4), max_size=3),
    st.integers(1, 4),
)
def test_beams_follow_their_texts(table: Table, width: int, budget: int, stop: frozenset[int], prefix: int) -> None:
    beams, memory, told = Beams(width, stop, budget, prefix), Memory(prefix), list[tuple[int, float]]()
    expected = search(table, width, budget, stop)
    try:
        told += beams.advance(table(())[None])
        while len(told) < budget and not (told and told[-1][0] in stop):
            memory.read(beams)
            told += beams.advance(torch.stack([table(text.tokens) for text in beams.live]))
    except EngineError:
        assert expected is None
    else:
        assert expected is not None
        assert [token for token, _ in told] == expected[0]
        assert [logprob for _, logprob in told] == pytest.approx(expected[1])
