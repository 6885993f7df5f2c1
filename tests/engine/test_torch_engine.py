"""The embedded engine against transformers' own generate, and requests that fail, leave or come late."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count

import pytest
import torch
from attrs import evolve, frozen
from transformers import LlamaConfig, LlamaForCausalLM, WhisperConfig, WhisperForConditionalGeneration

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EncodedRows, Finished, GeneratedToken, GenerationRequest
from asr_core.engines.torch import CausalDecoder, CrossDecoder, Row, TorchEngine
from asr_core.errors import EngineError, OverloadedError
from asr_core.types import Bias, Force, Sampling, Suppress

PROMPT = (5, 17, 3, 60)
IDS = count()


@pytest.fixture(scope="module")
def causal() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def cross() -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=97,
        d_model=32,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=2,
    )
    return WhisperForConditionalGeneration(config).eval()


@pytest.fixture
def compute() -> Iterator[Compute]:
    compute = Compute()
    yield compute
    compute.close()


@pytest.fixture
def engine(causal: LlamaForCausalLM, compute: Compute) -> Iterator[TorchEngine]:
    engine = TorchEngine(CausalDecoder(causal.model, causal.lm_head), compute)
    yield engine
    engine.close()


def ask(prompt: Sequence[int] = PROMPT, budget: int = 12, **fields: object) -> GenerationRequest:
    return GenerationRequest(id=str(next(IDS)), prompt=(tuple(prompt),), budget=budget, **fields)


async def collect(engine: TorchEngine, request: GenerationRequest) -> tuple[list[GeneratedToken], str]:
    items = [item async for item in engine.generate(request)]
    assert isinstance(items[-1], Finished)
    return items[:-1], items[-1].reason


def generate(engine: TorchEngine, request: GenerationRequest) -> tuple[list[int], str]:
    tokens, reason = asyncio.run(collect(engine, request))
    return [token.id for token in tokens], reason


def reference(model: LlamaForCausalLM, prompt: Sequence[int], budget: int = 12) -> list[int]:
    ids = torch.tensor([list(prompt)])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=budget)
    return output[0, len(prompt) :].tolist()


def test_greedy_ids_are_those_of_generate(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    assert generate(engine, ask()) == (reference(causal, PROMPT), "length")


def test_embeddings_stand_for_tokens(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    rows = causal.model.embed_tokens(torch.tensor(PROMPT[1:3])).detach()
    request = evolve(ask(), prompt=(PROMPT[:1], EncodedRows(rows, b"rows"), PROMPT[3:]))
    assert generate(engine, request)[0] == reference(causal, PROMPT)


def test_cross_attention_decodes_as_the_whole_model(cross: WhisperForConditionalGeneration, compute: Compute) -> None:
    features = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        encoded = cross.model.encoder(features).last_hidden_state
    engine = TorchEngine(CrossDecoder(cross.model.decoder, cross.proj_out), compute)
    for row in range(2):
        expected = _greedy(cross, encoded[row : row + 1], torch.tensor([[2, 30, 31]]), 12)
        assert generate(engine, ask((2, 30, 31), cross=EncodedRows(encoded[row], bytes([row]))))[0] == expected
    engine.close()


@torch.no_grad()
def _greedy(model: WhisperForConditionalGeneration, encoded: torch.Tensor, ids: torch.Tensor, budget: int) -> list[int]:
    """Token by token without any cache: slow, and with nothing to get wrong."""
    start = ids.shape[1]
    for _ in range(budget):
        logits = model(encoder_outputs=(encoded,), decoder_input_ids=ids, use_cache=False).logits
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids[0, start:].tolist()


def test_company_changes_nothing(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    prompts = [tuple((7 * n + k) % 97 for k in range(1 + n)) for n in range(12)]

    async def together() -> list[list[int]]:
        async def one(number: int, prompt: tuple[int, ...]) -> list[int]:
            await asyncio.sleep(0.003 * (number % 5))
            tokens, _ = await collect(engine, ask(prompt, budget=4 + number))
            return [token.id for token in tokens]

        return await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(prompts)))

    expected = [reference(causal, prompt, 4 + number) for number, prompt in enumerate(prompts)]
    assert asyncio.run(together()) == expected


def test_logprobs_are_those_of_the_softmax(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    tokens, _ = asyncio.run(collect(engine, ask(budget=3)))
    ids = torch.tensor([[*PROMPT, *(token.id for token in tokens)]])
    with torch.no_grad():
        expected = causal(ids).logits[0].log_softmax(-1)
    for number, token in enumerate(tokens):
        assert token.logprob == pytest.approx(float(expected[len(PROMPT) + number - 1, token.id]), abs=1e-4)


def test_a_stop_token_is_the_last(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    expected = reference(causal, PROMPT)
    stop = expected[4]
    until = expected[: expected.index(stop) + 1]
    assert generate(engine, ask(stop=frozenset({stop}))) == (until, "stop")


def test_given_tokens_are_continued_outside_the_budget(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    expected = reference(causal, PROMPT)
    assert generate(engine, ask(given=tuple(expected[:5]), budget=7))[0] == expected[5:]


def test_a_probe_inspects_before_rules(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    request = ask(budget=1, inspect=(3, 50), rules=(Suppress((3, 50)),))
    tokens, _ = asyncio.run(collect(engine, request))
    with torch.no_grad():
        expected = causal(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
    assert tokens[0].inspected == pytest.approx((float(expected[3]), float(expected[50])), abs=1e-4)


def test_rules(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    first, second = reference(causal, PROMPT)[:2]
    assert first not in generate(engine, ask(rules=(Suppress((first,)),)))[0]
    begun = generate(engine, ask(rules=(Suppress((first,), at_begin=True),)))[0]
    assert begun[0] != first
    assert generate(engine, ask(rules=(Force((9, 8)),)))[0][:2] == [9, 8]
    assert generate(engine, ask(budget=3, rules=(Bias((42,), 1000.0),)))[0] == [42, 42, 42]
    assert generate(engine, ask(budget=2))[0] == [first, second]


@frozen
class Alternate:
    """A custom rule: even and odd tokens in turn, told from what was seen."""

    def apply(self, seen: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
        for row, output in enumerate(seen):
            logits[row, (1 + len(output)) % 2 :: 2] = -torch.inf
        return logits


def test_a_custom_rule_sees_given_tokens_as_output(engine: TorchEngine) -> None:
    ids = generate(engine, ask(rules=(Alternate(),), budget=4))[0]
    assert [token % 2 for token in ids] == [0, 1, 0, 1]
    ids = generate(engine, ask(rules=(Alternate(),), given=(8,), budget=4))[0]
    assert [token % 2 for token in ids] == [1, 0, 1, 0]


def test_a_seed_is_a_result(engine: TorchEngine) -> None:
    def draw(seed: int) -> list[int]:
        return generate(engine, ask(sampling=Sampling(temperature=1.0, seed=seed)))[0]

    assert draw(1) == draw(1)
    assert len({tuple(draw(seed)) for seed in range(5)}) > 1


def test_sampling_follows_the_distribution(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    with torch.no_grad():
        probabilities = (causal(torch.tensor([PROMPT])).logits[0, -1] / 0.05).softmax(-1)
    drawn = Counter(
        generate(engine, ask(budget=1, sampling=Sampling(temperature=0.05, seed=seed)))[0][0] for seed in range(300)
    )
    # Four standard deviations of a binomial at its widest.
    assert all(abs(drawn[token] / 300 - float(probabilities[token])) < 4 * 0.5 / 300**0.5 for token in range(97))


def test_a_small_top_p_is_greedy(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    sampling = Sampling(temperature=1.0, top_p=1e-6, seed=3)
    assert generate(engine, ask(sampling=sampling))[0] == reference(causal, PROMPT)


def test_leaving_the_stream_frees_the_request_within_a_token(engine: TorchEngine) -> None:
    async def leave() -> None:
        stream = engine.generate(ask(budget=10_000))
        await anext(stream)
        await stream.aclose()
        for _ in range(1000):
            if not engine.statistics().running:
                break
            await asyncio.sleep(0.005)

    asyncio.run(leave())
    statistics = engine.statistics()
    assert (statistics.running, statistics.aborted) == (0, 1)


def test_an_abort_ends_the_stream_without_a_result(engine: TorchEngine) -> None:
    async def aborted() -> list[object]:
        request, items = ask(budget=10_000), []
        async for item in engine.generate(request):
            items.append(item)
            engine.abort(request.id)
        return items

    assert not any(isinstance(item, Finished) for item in asyncio.run(aborted()))


class Fragile:
    """A decoder around another that cannot bear one token."""

    def __init__(self, inner: CausalDecoder, token: int, *, nan: bool = False) -> None:
        self.inner, self.token, self.nan = inner, token, nan

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        self.inner.bind(slot, encoded)

    def free(self, slot: int) -> None:
        self.inner.free(slot)

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        if any(self.token in part for row in rows for part in row.parts):
            if self.nan:
                return torch.full((len(rows), 97), torch.nan)
            raise ValueError("not this token")
        return self.inner.extend(rows)


@pytest.mark.parametrize(("nan", "message"), [(False, "ValueError: not this token"), (True, "NaN")])
def test_a_step_that_fails_fails_its_request_only(
    causal: LlamaForCausalLM, compute: Compute, nan: bool, message: str
) -> None:
    engine = TorchEngine(Fragile(CausalDecoder(causal.model, causal.lm_head), 90, nan=nan), compute)

    async def both() -> list[object]:
        jobs = (collect(engine, ask(PROMPT)), collect(engine, ask((90, 1))))
        return await asyncio.gather(*jobs, return_exceptions=True)

    good, bad = asyncio.run(both())
    assert [token.id for token in good[0]] == reference(causal, PROMPT)
    assert isinstance(bad, EngineError)
    assert message in str(bad)
    assert engine.statistics().failed == 1
    engine.close()


def test_closing_fails_what_runs_and_refuses_what_comes(engine: TorchEngine) -> None:
    async def close() -> None:
        stream = engine.generate(ask(budget=10_000))
        await anext(stream)
        await asyncio.to_thread(engine.close)
        with pytest.raises(OverloadedError):
            await _exhaust(stream)
        with pytest.raises(OverloadedError):
            await collect(engine, ask())

    asyncio.run(close())
    assert engine.statistics().running == 0


async def _exhaust(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        continue


def test_a_slot_starts_empty_for_its_next_request(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    for prompt in ((1, 2, 3, 4, 5, 6), (50,), PROMPT):
        assert generate(engine, ask(prompt))[0] == reference(causal, prompt)


def test_an_earlier_start_forgets_what_came_after(causal: LlamaForCausalLM) -> None:
    decoder = CausalDecoder(causal.model, causal.lm_head)
    with torch.no_grad():
        expected = decoder.extend([Row(0, 0, (PROMPT,))])
        decoder.extend([Row(1, 0, ((5, 17, 80, 81, 82),))])
        again = decoder.extend([Row(1, 2, (PROMPT[2:],))])
    torch.testing.assert_close(again, expected)


def test_a_gap_is_refused(causal: LlamaForCausalLM) -> None:
    with pytest.raises(ValueError, match="holds 0 positions"), torch.no_grad():
        CausalDecoder(causal.model, causal.lm_head).extend([Row(0, 3, (PROMPT,))])


class Hostile(Fragile):
    """Raises what no module should, or cannot let go."""

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        if any(self.token in part for row in rows for part in row.parts):
            raise SystemExit("a library called exit()")
        return self.inner.extend(rows)

    def free(self, slot: int) -> None:
        self.inner.free(slot)
        if self.nan:
            raise RuntimeError("cannot let go")


@pytest.mark.parametrize(("prompt", "stuck"), [((90, 1), False), (PROMPT, True)])
def test_the_turns_go_on_whatever_a_module_raises(
    causal: LlamaForCausalLM, compute: Compute, prompt: tuple[int, ...], stuck: bool
) -> None:
    decoder = Hostile(CausalDecoder(causal.model, causal.lm_head), 90, nan=stuck)
    engine = TorchEngine(decoder, compute)
    with pytest.raises(EngineError, match=r"exit|let go"):
        generate(engine, ask(prompt))
    decoder.nan = False
    assert generate(engine, ask())[0] == reference(causal, PROMPT)
    engine.close()


def test_a_compute_thread_that_closes_first_fails_what_runs(causal: LlamaForCausalLM) -> None:
    compute = Compute()
    engine = TorchEngine(CausalDecoder(causal.model, causal.lm_head), compute)

    async def close() -> None:
        stream = engine.generate(ask(budget=10_000))
        await anext(stream)
        await asyncio.to_thread(compute.close)
        with pytest.raises(OverloadedError):
            await asyncio.wait_for(_exhaust(stream), 30)
        with pytest.raises(OverloadedError):
            await asyncio.wait_for(collect(engine, ask()), 30)

    asyncio.run(close())
    engine.close()
    engine.close()


def test_a_loop_that_is_gone_ends_its_requests(engine: TorchEngine, compute: Compute) -> None:
    loop = asyncio.new_event_loop()
    stream = engine.generate(ask(budget=10**6))
    loop.run_until_complete(anext(stream))
    loop.close()
    while engine.statistics().running:
        compute.submit(int).result()
    assert engine.statistics().aborted == 1
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_until_complete(stream.aclose())


def test_rules_that_forbid_everything_say_so(engine: TorchEngine) -> None:
    with pytest.raises(EngineError, match="forbid every token"):
        generate(engine, ask(rules=(Suppress(tuple(range(97))),)))


def test_empty_parts_of_a_prompt_are_nothing(engine: TorchEngine, causal: LlamaForCausalLM) -> None:
    request = evolve(ask(), prompt=((), PROMPT[:2], (), PROMPT[2:]))
    assert generate(engine, request)[0] == reference(causal, PROMPT)


def test_nothing_wanted_is_nothing_answered(causal: LlamaForCausalLM) -> None:
    decoder = CausalDecoder(causal.model, causal.lm_head)
    with torch.no_grad():
        assert decoder.extend([Row(0, 0, (PROMPT[:3],), want=0)]).shape == (0, 97)
        assert decoder.extend([Row(0, 3, (PROMPT[3:],))]).argmax() == reference(causal, PROMPT)[0]
