"""Rows of many slots in one forward, against every sequence alone without a cache."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralModel

from asr_core.engines.torch import CausalDecoder, CrossDecoder, Row, SlotDecoder
from asr_core.errors import EngineMismatchError


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield


class Play:
    """Sequences that grow by random amounts in random company, in slots that are freed, rewound and taken again."""

    def __init__(self, subject: Any, seed: int) -> None:
        self.subject, self.random = subject, random.Random(seed)
        self.decoder = subject.decoder()
        self.held: dict[int, list[int]] = {}
        self.encoded: dict[int, torch.Tensor | None] = {}

    def turn(self) -> None:
        slots = self.random.sample(range(7), self.random.randint(1, 7))
        rows = [self.row(slot) for slot in slots]
        logits = self.decoder.extend(rows)
        assert logits.dtype == torch.float32
        expected = [self.subject.logits(self.held[row.slot], self.encoded[row.slot])[-row.want :] for row in rows]
        torch.testing.assert_close(logits, torch.cat(expected), atol=1e-4, rtol=1e-4)

    def row(self, slot: int) -> Row:
        if slot not in self.held or self.random.random() < 0.1:
            self.start(slot)
        held = self.held[slot]
        start = self.random.randint(0, len(held)) if self.random.random() < 0.1 else len(held)
        count = self.random.choice((1, 1, 1, 2, 3, 9))
        ids = [self.random.randrange(97) for _ in range(count)]
        self.held[slot] = [*held[:start], *ids]
        return Row(slot, start, self.parts(ids), self.random.randint(1, count))

    def start(self, slot: int) -> None:
        self.decoder.free(slot)
        self.held[slot], self.encoded[slot] = [], self.subject.encoded(self.random.randrange(10))
        if self.subject.crossing:
            self.decoder.bind(slot, self.encoded[slot])

    def parts(self, ids: list[int]) -> tuple[Any, ...]:
        cut = self.random.randint(0, len(ids))
        if self.subject.crossing or cut == len(ids):
            return (tuple(ids[:cut]), tuple(ids[cut:]))
        return (tuple(ids[:cut]), self.subject.embed(ids[cut:]))


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_what_they_are_alone(subject: Any, seed: int) -> None:
    play = Play(subject, seed)
    for _ in range(20):
        for held in play.held.values():
            del held[40:]  # rewound, so that the sequences stay within the positions of the module
        play.turn()


def test_nan_in_a_slot_stays_there(small: Any) -> None:
    decoder = small.decoder()
    bad = torch.full((9, 32), torch.nan)
    assert decoder.extend([Row(0, 0, (bad,))]).isnan().all()
    good, still = decoder.extend([Row(1, 0, ((1, 2, 3),)), Row(0, 9, ((4, 5),))])
    torch.testing.assert_close(good, small.logits((1, 2, 3))[-1])
    assert still.isnan().all()
    decoder.free(0)
    again, _ = decoder.extend([Row(0, 0, ((1, 2),)), Row(1, 0, (tuple(range(20, 33)),))])
    torch.testing.assert_close(again, small.logits((1, 2))[-1], atol=1e-5, rtol=1e-5)


def test_a_freed_listener_hears_nothing_of_before(listener: Any) -> None:
    decoder = listener.decoder()
    decoder.bind(0, torch.full((19, 32), torch.nan))
    decoder.free(0)
    for slot, number in ((0, 0), (1, 3)):
        decoder.bind(slot, listener.encoded(number))
    short, _ = decoder.extend([Row(0, 0, ((2, 30),)), Row(1, 0, ((2, 31),))])
    torch.testing.assert_close(short, listener.logits((2, 30), listener.encoded(0))[-1], atol=1e-5, rtol=1e-5)


def test_released_memory_can_be_used_again(subject: Any) -> None:
    decoder = subject.decoder()
    assert isinstance(decoder, SlotDecoder)
    for _ in range(2):
        if subject.crossing:
            decoder.bind(0, subject.encoded(1))
        logits = decoder.extend([Row(0, 0, ((2, 3, 4),))])
        torch.testing.assert_close(logits[0], subject.logits((2, 3, 4), subject.encoded(1))[-1], atol=1e-5, rtol=1e-5)
        decoder.release()
    with pytest.raises(ValueError, match="holds 0"):
        decoder.extend([Row(0, 3, ((5,),))])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([Row(0, 0, ((1,) * 9,))], "ends at 9, but a slot has 8"),
        ([Row(0, 0, ((1,),)), Row(0, 0, ((2,),))], "two rows of one slot"),
        ([Row(0, 0, ((), ()))], "without positions"),
        ([Row(0, 1, ((1,),))], "holds 0 positions"),
    ],
)
def test_rows_that_cannot_be_are_refused(small: Any, rows: list[Row], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small.decoder(capacity=8).extend(rows)


def test_padding_asks_for_no_position_there_is_not(subject: Any) -> None:
    """A short row at the very end of its slot, beside a longer one."""
    decoder, long, short = subject.decoder(capacity=64), tuple(range(64)), (2, 30, 31)
    for slot in range(2):
        if subject.crossing:
            decoder.bind(slot, subject.encoded(slot))
    decoder.extend([Row(0, 0, (long[:62],))])
    logits = decoder.extend([Row(0, 62, (long[62:],)), Row(1, 0, (short,))])
    expected = [subject.logits(ids, subject.encoded(slot))[-1:] for slot, ids in enumerate((long, short))]
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_a_row_that_failed_has_rewound_its_slot(small: Any) -> None:
    decoder = small.decoder()
    decoder.extend([Row(0, 0, ((1, 2, 3, 4, 5),))])
    with pytest.raises(RuntimeError):
        decoder.extend([Row(0, 2, (torch.zeros(1, 7),))])
    with pytest.raises(ValueError, match="holds 2 positions"):
        decoder.extend([Row(0, 5, ((6,),))])


def test_the_capacity_is_the_modules_at_most(subject: Any) -> None:
    natural = 64 if subject.crossing else subject.model.config.max_position_embeddings
    assert subject.decoder().capacity == subject.decoder(capacity=10**6).capacity == natural
    assert subject.decoder(capacity=10).capacity == 10


def test_modules_that_forget_are_refused() -> None:
    module = MistralModel(MistralConfig(hidden_size=8, num_attention_heads=2, num_key_value_heads=2, sliding_window=4))
    with pytest.raises(EngineMismatchError, match="Sliding"):
        CausalDecoder(module, torch.nn.Identity())


def test_a_module_without_cross_attention_is_no_listener(small: Any) -> None:
    with pytest.raises(EngineMismatchError, match="cross attention"):
        CrossDecoder(small.model.model, small.model.lm_head)


def test_listeners_take_no_embeddings(listener: Any) -> None:
    decoder = listener.decoder()
    decoder.bind(0, listener.encoded(1))
    with pytest.raises(TypeError, match="tokens only"):
        decoder.extend([Row(0, 0, (torch.zeros(1, 32),))])


def test_a_reader_cannot_be_bound(small: Any) -> None:
    with pytest.raises(TypeError, match="no cross attention"):
        small.decoder().bind(0, torch.zeros(1, 32))
