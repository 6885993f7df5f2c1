"""What cross attention sees, against transformers' own eager attention over the same weights, alone and in company."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import EncodedRows, Finished, GenerationRequest
from asr_core.engines.torch import AttentiveDecoder, EngineLimits, Row, TorchEngine
from asr_core.errors import EngineError, EngineMismatchError

from .conftest import Subject, whisper

HEADS = ((1, 3), (0, 0), (1, 1))
PROMPT = (2, 30, 31, 32, 33, 34, 35)


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def attentive(request: pytest.FixtureRequest) -> Subject:
    return Subject(whisper(attn_implementation=request.param), True)


@pytest.fixture(scope="module")
def eager() -> Any:
    return whisper(attn_implementation="eager")


def seen_by_transformers(eager: Any, ids: Sequence[int], encoded: torch.Tensor) -> torch.Tensor:
    """Weights of HEADS after the softmax, [heads, positions, encoder rows]."""
    output = eager(
        encoder_outputs=(encoded[None],), decoder_input_ids=torch.tensor([ids]), use_cache=False, output_attentions=True
    )
    return torch.stack([output.cross_attentions[layer][0, head] for layer, head in HEADS])


def agree(products: torch.Tensor, expected: torch.Tensor) -> None:
    assert products.dtype == torch.float32
    torch.testing.assert_close(products.softmax(-1), expected, atol=1e-5, rtol=1e-4)


def attended(decoder: Any, slot: int) -> torch.Tensor:
    assert isinstance(decoder, AttentiveDecoder)
    return decoder.attended(slot)


def test_the_products_are_those_of_eager_attention(attentive: Subject, eager: Any) -> None:
    decoder, encoded = attentive.decoder(), attentive.encoded(3)
    assert encoded is not None
    decoder.bind(0, encoded)
    decoder.extend([Row(0, 0, (PROMPT[:3], PROMPT[3:]), attend=HEADS)])
    agree(attended(decoder, 0), seen_by_transformers(eager, PROMPT, encoded))


def test_the_products_are_scaled_and_not_only_equal_up_to_a_softmax(attentive: Subject) -> None:
    """Worked out from the weights of the first layer: a constant that the softmax forgives would be seen."""
    decoder, encoded = attentive.decoder(), attentive.encoded(3)
    assert encoded is not None
    decoder.bind(0, encoded)
    caught: list[torch.Tensor] = []
    cross = attentive.model.model.decoder.layers[0].encoder_attn
    hook = cross.register_forward_pre_hook(lambda module, args: caught.append(args[0][0]))
    decoder.extend([Row(0, 0, (PROMPT,), attend=((0, 2),))])
    hook.remove()
    part = slice(16, 24)  # heads of width 8
    expected = cross.q_proj(caught[-1])[:, part] @ cross.k_proj(encoded)[:, part].T / 8**0.5
    torch.testing.assert_close(attended(decoder, 0), expected[None], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_company_and_chunks_change_nothing(attentive: Subject, eager: Any, seed: int) -> None:
    draw = random.Random(seed)
    decoder = attentive.decoder()
    prompts = {slot: tuple(draw.randrange(97) for _ in range(draw.randint(2, 30))) for slot in range(5)}
    pieces: dict[int, list[torch.Tensor]] = {slot: [] for slot in prompts}
    encoded = {slot: attentive.encoded(slot) for slot in prompts}
    for slot, rows in encoded.items():
        assert rows is not None
        decoder.bind(slot, rows)
    position = dict.fromkeys(prompts, 0)
    while any(position[slot] < len(prompt) for slot, prompt in prompts.items()):
        reading = [slot for slot, prompt in prompts.items() if position[slot] < len(prompt)]
        ends = {
            slot: position[slot] + draw.randint(1, 9) for slot in draw.sample(reading, draw.randint(1, len(reading)))
        }
        # Those with an even number ask, the others are only there.
        rows_ = [
            Row(n, position[n], (prompts[n][position[n] : end],), 1, () if n % 2 else HEADS) for n, end in ends.items()
        ]
        decoder.extend(rows_)
        for row in rows_:
            position[row.slot] = row.start + row.length
            if row.attend:
                pieces[row.slot].append(attended(decoder, row.slot))
            else:
                with pytest.raises(KeyError):
                    attended(decoder, row.slot)
    for slot in (0, 2, 4):
        agree(torch.cat(pieces[slot], dim=1), seen_by_transformers(eager, prompts[slot], encoded[slot]))


@pytest.mark.parametrize("head", [(2, 0), (0, 4), (-1, 0), (0, -1)])
def test_a_head_that_is_not_there_is_refused(attentive: Subject, head: tuple[int, int]) -> None:
    decoder, encoded = attentive.decoder(), attentive.encoded(3)
    assert encoded is not None
    decoder.bind(0, encoded)
    with pytest.raises(ValueError, match="no head"):
        decoder.extend([Row(0, 0, (PROMPT,), attend=(head,))])
    decoder.extend([Row(0, 0, (PROMPT,))])


def test_nothing_is_kept_beyond_the_next_step(attentive: Subject) -> None:
    decoder, encoded = attentive.decoder(), attentive.encoded(3)
    assert encoded is not None
    decoder.bind(0, encoded)
    decoder.extend([Row(0, 0, (PROMPT,), attend=HEADS)])
    decoder.extend([Row(0, len(PROMPT), ((4,),))])
    with pytest.raises(KeyError):
        attended(decoder, 0)


def ask(name: str, number: int, attentive: Subject, **fields: Any) -> GenerationRequest:
    rows = attentive.encoded(number)
    assert rows is not None
    return GenerationRequest(name, (PROMPT,), cross=EncodedRows(rows, str(number).encode()), **fields)


async def first(engine: TorchEngine, request: GenerationRequest) -> Any:
    items = [item async for item in engine.generate(request)]
    assert all(isinstance(item, Finished) or item.attention is None for item in items[1:])
    return items[0].attention  # type: ignore[union-attr]


@pytest.mark.parametrize("chunk", [2, 5, 256])
def test_the_engine_puts_chunks_together_and_reuses_none(
    attentive: Subject, eager: Any, compute: Compute, chunk: int
) -> None:
    """One request after the other: the prompt is in memory, and still all of its positions look."""
    limits = EngineLimits(max_running=2, prefill_chunk=chunk, keep_prefixes=True)
    engine = TorchEngine(attentive.decoder(), compute, limits)

    async def go() -> list[Any]:
        await first(engine, ask("before", 3, attentive, budget=3))
        alone = await first(engine, ask("alone", 3, attentive, attend=HEADS))
        company = (ask(str(n), n, attentive, given=(5, n), budget=9, attend=HEADS) for n in range(6))
        return [alone, *await asyncio.gather(*(first(engine, one) for one in company))]

    alone, *others = asyncio.run(go())
    engine.close()
    expected = [(PROMPT, 3), *(((*PROMPT, 5, n), n) for n in range(6))]
    for (ids, number), products in zip(expected, [alone, *others], strict=True):
        rows = attentive.encoded(number)
        assert rows is not None
        assert isinstance(products, np.ndarray)
        agree(torch.from_numpy(products), seen_by_transformers(eager, ids, rows))


def test_a_wrong_head_fails_its_request_alone(attentive: Subject, compute: Compute) -> None:
    engine = TorchEngine(attentive.decoder(), compute)

    async def go() -> tuple[Any, Any]:
        wrong, right = ask("wrong", 2, attentive, attend=((9, 9),)), ask("right", 1, attentive, attend=HEADS)
        return tuple(await asyncio.gather(first(engine, wrong), first(engine, right), return_exceptions=True))

    error, products = asyncio.run(go())
    engine.close()
    assert type(error) is EngineError
    assert "no head 9 in layer 9" in str(error)
    assert products.shape == (3, len(PROMPT), 8)
    assert (engine.statistics().failed, engine.statistics().finished) == (1, 1)


def test_a_decoder_without_cross_attention_refuses(small: Subject, compute: Compute) -> None:
    engine = TorchEngine(small.decoder(), compute)
    assert not isinstance(small.decoder(), AttentiveDecoder)
    request = GenerationRequest("one", (PROMPT,), attend=HEADS)
    with pytest.raises(EngineMismatchError, match="attention"):
        asyncio.run(first(engine, request))
    engine.close()
    now = engine.statistics()
    assert (now.failed, now.finished, now.tokens) == (0, 0, 0)
