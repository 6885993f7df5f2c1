"""The decoder in random company, against transformers' own, which is told every sequence alone and whole."""

from __future__ import annotations

import copy
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import WhisperForConditionalGeneration

from asr_core import audio
from asr_core.engines.torch import AttentiveDecoder, Row, SlotDecoder, _heard
from asr_core.engines.torch._batch import Branches
from asr_core.kernels import Columns, Int8Linear, Int8Rows, has_int8
from asr_whisper.decoder import WhisperDecoder
from asr_whisper.frontend import Frontend

from .conftest import features
from .tiny import FRAMES, POSITIONS, VOCABULARY, distance, encoded, logits, repeated, whisper

HEADS = ((1, 3), (0, 0), (1, 1))
PROMPT = (2, 30, 31, 32, 33, 34, 35)


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def theirs() -> WhisperForConditionalGeneration:
    return whisper(attn_implementation="eager")


def ours(module: WhisperForConditionalGeneration) -> WhisperDecoder:
    return WhisperDecoder(module.model.decoder, module.proj_out, module.config.max_source_positions)


class Play:
    """Sequences that grow by random amounts, hear audio of their own, and are rewound, freed and begun anew."""

    def __init__(self, theirs: WhisperForConditionalGeneration, seed: int) -> None:
        self.theirs, self.decoder, self.random = theirs, ours(theirs), random.Random(seed)
        self.held: dict[int, list[int]] = {}
        self.heard: dict[int, torch.Tensor] = {}

    def turn(self) -> None:
        rows = [self.row(slot) for slot in self.random.sample(range(7), self.random.randint(1, 7))]
        said = self.decoder.extend(rows)
        assert said.dtype == torch.float32
        expected = []
        for row in rows:
            alone = logits(self.theirs, self.held[row.slot], self.heard[row.slot], output_attentions=True)
            expected.append(alone.logits[0, -row.want :])
            if row.attend:
                seen = [alone.cross_attentions[layer][0, head, -row.length :] for layer, head in row.attend]
                products = self.decoder.attended(row.slot)
                assert products.dtype == torch.float32
                whole = repeated(products.permute(2, 0, 1), FRAMES // 2).permute(1, 2, 0)
                torch.testing.assert_close(whole.softmax(-1), torch.stack(seen), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(said, torch.cat(expected), atol=1e-4, rtol=1e-4)

    def row(self, slot: int) -> Row:
        if slot not in self.held or self.random.random() < 0.1:
            self.decoder.free(slot)
            self.held[slot], self.heard[slot] = [], encoded(self.random.randrange(10))
            self.decoder.bind(slot, self.heard[slot])
        held = self.held[slot][:40]
        start = self.random.randint(0, len(held)) if self.random.random() < 0.1 else len(held)
        ids = [self.random.randrange(VOCABULARY) for _ in range(self.random.choice((1, 1, 1, 2, 3, 9)))]
        self.held[slot], cut = [*held[:start], *ids], self.random.randint(0, len(ids))
        heads = HEADS if self.random.random() < 0.3 else ()
        parts = (tuple(ids[:cut]), tuple(ids[cut:]))
        return Row(slot, start, parts, self.random.randint(1, len(ids)), heads)


@pytest.mark.parametrize("seed", range(6))
def test_rows_and_what_they_look_at_are_what_they_are_alone(theirs: WhisperForConditionalGeneration, seed: int) -> None:
    play = Play(theirs, seed)
    for _ in range(20):
        play.turn()


def test_it_is_all_that_an_engine_may_ask_for(theirs: WhisperForConditionalGeneration) -> None:
    decoder = ours(theirs)
    assert isinstance(decoder, AttentiveDecoder)
    assert isinstance(decoder, SlotDecoder)
    assert decoder.capacity == POSITIONS


def test_the_products_are_scaled_and_not_only_equal_up_to_a_softmax(theirs: WhisperForConditionalGeneration) -> None:
    decoder, caught = ours(theirs), []
    decoder.bind(0, encoded(3))
    decoder.extend([Row(0, 0, (PROMPT,), attend=((0, 2),))])
    cross = theirs.model.decoder.layers[0].encoder_attn
    hook = cross.register_forward_pre_hook(
        lambda _, args, kwargs: caught.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    logits(theirs, PROMPT, encoded(3))
    hook.remove()
    part = slice(16, 24)  # heads of width 8
    expected = cross.q_proj(caught[0][0])[:, part] @ cross.k_proj(encoded(3))[:, part].T / 8**0.5
    torch.testing.assert_close(decoder.attended(0), expected[None], atol=1e-5, rtol=1e-5)


def test_a_chunk_of_a_prompt_wants_nothing(theirs: WhisperForConditionalGeneration) -> None:
    decoder = ours(theirs)
    decoder.bind(0, encoded(1))
    assert decoder.extend([Row(0, 0, (PROMPT[:4],), want=0)]).shape == (0, VOCABULARY)
    last = decoder.extend([Row(0, 4, (PROMPT[4:],))])
    torch.testing.assert_close(last, logits(theirs, PROMPT, encoded(1)).logits[0, -1:], atol=1e-4, rtol=1e-4)


def test_a_full_slot_beside_a_short_one(theirs: WhisperForConditionalGeneration) -> None:
    decoder, long = ours(theirs), tuple(range(POSITIONS))
    for slot in range(2):
        decoder.bind(slot, encoded(slot))
    decoder.extend([Row(0, 0, (long[:-2],))])
    said = decoder.extend([Row(0, POSITIONS - 2, (long[-2:],)), Row(1, 0, (PROMPT[:3],))])
    alone = [logits(theirs, ids, encoded(slot)).logits[0, -1] for slot, ids in enumerate((long, PROMPT[:3]))]
    torch.testing.assert_close(said, torch.stack(alone), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="a slot has 64"):
        decoder.extend([Row(0, POSITIONS, ((1,),))])


def test_a_freed_listener_hears_nothing_of_before(theirs: WhisperForConditionalGeneration) -> None:
    decoder = ours(theirs)
    decoder.bind(0, torch.full((FRAMES // 2, 32), torch.nan))
    decoder.free(0)
    for slot, number in ((0, 2), (1, 3)):
        decoder.bind(slot, encoded(number))
    short, _ = decoder.extend([Row(0, 0, (PROMPT,)), Row(1, 0, (PROMPT,))])
    torch.testing.assert_close(short, logits(theirs, PROMPT, encoded(2)).logits[0, -1], atol=1e-4, rtol=1e-4)


def test_places_that_moved_for_a_forward_that_failed(theirs: WhisperForConditionalGeneration) -> None:
    decoder, ids = ours(theirs), PROMPT
    for slot in range(3):
        decoder.bind(slot, encoded(slot))
        decoder.extend([Row(slot, 0, (PROMPT,))])

    def step(*slots: int) -> None:
        at = len(ids) - 1
        said = decoder.extend([Row(slot, at, (ids[at:],)) for slot in slots])
        alone = [logits(theirs, ids, encoded(slot)).logits[0, -1] for slot in slots]
        torch.testing.assert_close(said, torch.stack(alone), atol=1e-4, rtol=1e-4)

    for token, slots in enumerate([(0, 1), (0, 1), (1,), (1,), (0, 1)]):
        for slot in {0, 1, 2}.difference(slots):
            decoder.extend([Row(slot, len(ids), ((token,),))])
        ids = (*ids, token)
        step(*slots)
        with pytest.raises(TypeError, match="tokens only"):
            decoder.extend([Row(0, len(ids), ((1,),)), Row(2, len(ids), (torch.zeros(1, 32),))])
        step(*slots)


def test_released_memory_can_be_used_again(theirs: WhisperForConditionalGeneration) -> None:
    decoder = ours(theirs)
    for number in (1, 2):
        decoder.bind(4, encoded(number))
        (said,) = decoder.extend([Row(4, 0, (PROMPT,))])
        torch.testing.assert_close(said, logits(theirs, PROMPT, encoded(number)).logits[0, -1], atol=1e-4, rtol=1e-4)
        decoder.release()
        assert not any(layer._stored for layer in decoder.memory.layers)
    with pytest.raises(ValueError, match="never bound"):
        decoder.extend([Row(4, 0, (PROMPT,))])


@pytest.mark.parametrize("head", [(2, 0), (0, 4), (-1, 0), (0, -1)])
def test_a_head_that_is_not_there_is_refused(theirs: WhisperForConditionalGeneration, head: tuple[int, int]) -> None:
    decoder = ours(theirs)
    decoder.bind(0, encoded(3))
    with pytest.raises(ValueError, match="no head"):
        decoder.extend([Row(0, 0, (PROMPT,), attend=(head,))])
    decoder.extend([Row(0, 0, (PROMPT,))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_speech_through_base(
    transformers_base: WhisperForConditionalGeneration,
    frontend: Frontend,
    librivox: dict[Path, str],
    dtype: torch.dtype,
) -> None:
    """Two clips, of which one is read whole and the other token by token: rounded as theirs would be."""
    rounded, special = copy.deepcopy(transformers_base).to(dtype), frontend.special
    prompt = (special.sot, special.languages["en"], special.transcribe, special.no_timestamps)
    decoder, texts, clips = ours(rounded), [], []
    for slot, (path, words) in enumerate(list(librivox.items())[:2]):
        texts.append((*prompt, *frontend.tokenizer.encode(f" {words.capitalize()}", add_special_tokens=False).ids))
        heard = features(frontend, audio.load(path, 16_000).samples)
        clips.append(transformers_base.model.encoder(heard).last_hidden_state[0])
        decoder.bind(slot, clips[slot])
    whole, steps = texts
    begun = decoder.extend([Row(0, 0, (whole,), want=len(whole)), Row(1, 0, (steps[:4],), want=4)])
    said = [begun[-4:], *(decoder.extend([Row(1, at, (steps[at : at + 1],))]) for at in range(4, len(steps)))]
    for ids, rows, found in zip(texts, clips, (begun[:-4], torch.cat(said)), strict=True):
        exact = logits(transformers_base, ids, rows).logits[0]
        theirs = logits(rounded, ids, rows.to(dtype)).logits[0]
        assert distance(found, exact) < max(1e-5, 2 * distance(theirs, exact))


@pytest.mark.skipif(not has_int8(), reason="no products in int8 here")
@pytest.mark.parametrize("compiler", [True, False])
def test_in_int8_it_says_nearly_the_same(
    theirs: WhisperForConditionalGeneration, monkeypatch: pytest.MonkeyPatch, compiler: bool
) -> None:
    """Also for slots that were not neighbours; what is heard is in int8 where there is a compiler."""
    if not compiler:
        monkeypatch.setattr(_heard, "has_int8_rows", lambda width: False)
    elif shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    decoder = WhisperDecoder(theirs.model.decoder, theirs.proj_out, theirs.config.max_source_positions, Int8Linear)
    for slot in range(3):
        decoder.bind(slot, encoded(slot))
        decoder.extend([Row(slot, 0, (PROMPT,))])
    said = decoder.extend([Row(slot, len(PROMPT), ((40,),), attend=HEADS) for slot in (0, 2)])
    for slot, found in zip((0, 2), said, strict=True):
        alone = logits(theirs, (*PROMPT, 40), encoded(slot), output_attentions=True)
        assert distance(found, alone.logits[0, -1]) < 0.05
        seen = repeated(decoder.attended(slot).permute(2, 0, 1), FRAMES // 2).permute(1, 2, 0).softmax(-1)
        exact = torch.stack([alone.cross_attentions[layer][0, head, -1:] for layer, head in HEADS])
        assert distance(seen, exact) < 0.05
    held = {type(place) for layer in decoder.heard.layers for place in layer._stored.values()}
    assert held == {Int8Rows if compiler else Columns}


def test_branches_are_what_their_texts_are_alone(theirs: WhisperForConditionalGeneration) -> None:
    """Three texts, of which one is dropped and one goes on twice, beside a slot with one text."""
    decoder, length = ours(theirs), len(PROMPT)
    for slot in range(2):
        decoder.bind(slot, encoded(slot))
        decoder.extend([Row(slot, 0, (PROMPT,))])
    first = Branches((7, 8, 9), torch.ones(3, length, dtype=torch.bool))
    follows = torch.ones(3, length + 3, dtype=torch.bool)
    for text, place in enumerate((7, 7, 9)):
        follows[text, length:] = torch.arange(7, 10) == place
    turns = [
        (Row(0, length, ((40, 41, 42),), 3, branches=first), [(40,), (41,), (42,)]),
        (Row(0, length, ((50, 51, 52),), 3, branches=Branches((8, 10, 11), follows)), [(40, 50), (40, 51), (42, 52)]),
    ]
    for turn, (row, texts) in enumerate(turns):
        *branches, other = decoder.extend([row, Row(1, length + turn, ((60 + turn,),))])
        for said, text in zip(branches, texts, strict=True):
            torch.testing.assert_close(
                said, logits(theirs, PROMPT + text, encoded(0)).logits[0, -1], atol=1e-4, rtol=1e-4
            )
        alone = logits(theirs, (*PROMPT, 60, 61)[: length + turn + 1], encoded(1)).logits[0, -1]
        torch.testing.assert_close(other, alone, atol=1e-4, rtol=1e-4)
