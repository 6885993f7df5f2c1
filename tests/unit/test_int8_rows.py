"""Keys and values in int8: near what they were, and attention over them is attention over just these numbers."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from asr_core.kernels import Columns, Int8Rows, has_int8_rows
from asr_core.kernels._native import compiled

compiles = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")

WIDTHS = pytest.mark.parametrize("width", [8, 20, 64, 128])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def found_alone(queries: torch.Tensor, place: Int8Rows, mask: torch.Tensor | None) -> torch.Tensor:
    """By torch, in float64, of the very numbers that the place holds; ``queries`` [heads, n, width]."""
    keys, values = place.rows.double(), (place.values * place.value_scales[..., None]).double()
    bias = None if mask is None else mask.double()
    return scaled_dot_product_attention(queries.double(), keys, values, attn_mask=bias, scale=1).float()


def near(found: torch.Tensor, queries: torch.Tensor, places: Sequence[Int8Rows], mask: torch.Tensor | None) -> None:
    for row, place in enumerate(places):
        own = None if mask is None else mask[row, 0, :, : place.keys.shape[1]]
        torch.testing.assert_close(found[row], found_alone(queries[row], place, own), atol=2e-5, rtol=1e-4)


@compiles
def test_a_compiler_is_all_it_takes() -> None:
    assert has_int8_rows(64)


@compiles
@WIDTHS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_is_off_by_a_254th_of_its_largest_number(width: int, dtype: torch.dtype) -> None:
    """Rows of unlike size, none of which costs another anything; those of (nearly) zero become zeros."""
    rows = random(3, 70, width).to(dtype)
    rows[1, 5] *= 1e4
    rows[2, 7:9] = torch.tensor([[0], [1e-40]])
    place = Int8Rows.of(rows, 2 * rows)
    for got, exact in ((place.rows, rows), (place.values * place.value_scales[..., None], 2 * rows)):
        off = (got - exact.float()).abs()
        assert (off <= exact.float().abs().amax(-1, keepdim=True) / 253.9 + 1e-37).all()
        assert not got[2, 7:9].any()


@compiles
@WIDTHS
@pytest.mark.parametrize("positions", [1, 5])
def test_rows_of_unlike_length_find_what_attention_finds(width: int, positions: int) -> None:
    """Longer and shorter than what is computed at once; the mask hides what is behind the end, and weighs one key."""
    lengths = (700, 256, 3)
    places = [Int8Rows.of(random(2, length, width), random(2, length, width, seed=1)) for length in lengths]
    queries = random(3, positions, 2, width, seed=2).transpose(
        1, 2
    )  # heads beside each other, as a fused product leaves them
    mask = torch.zeros(3, 1, 1, max(lengths))
    mask[..., 2] = 0.7
    for row, length in enumerate(lengths):
        mask[row, ..., length:] = torch.finfo(torch.float32).min
    mask[0, ..., :300] = -torch.inf
    near(Int8Rows.attend(queries, places, mask), queries, places, mask)
    near(Int8Rows.attend(queries, places), queries, places, None)


@compiles
@pytest.mark.parametrize("order", [1, -1])
def test_the_highest_score_may_come_last_and_be_large(order: int) -> None:
    rising = torch.linspace(-90, 90, 900)[None, :, None].expand(1, 900, 64) * order / 8
    places, queries = [Int8Rows.of(rising, random(1, 900, 64))], torch.ones(1, 1, 1, 64)
    near(Int8Rows.attend(queries, places), queries, places, None)


@compiles
@pytest.mark.parametrize("at", [0, 255, 299])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_reaches_its_own_head_only(at: int, number: float) -> None:
    sound, broken = random(2, 300, 64), random(2, 300, 64, seed=1)
    broken[0, at, 3] = number
    queries = random(3, 2, 1, 64, seed=2)
    places = [Int8Rows.of(sound, sound), Int8Rows.of(broken, sound), Int8Rows.of(sound, broken)]
    found = Int8Rows.attend(queries, places)
    assert not found[1:, 0].isfinite().all(-1).any()
    assert found[0].isfinite().all()
    assert found[1:, 1].isfinite().all()
    assert torch.equal(found[:1], Int8Rows.attend(queries[:1], places[:1]))


@compiles
def test_it_answers_in_the_dtype_of_the_queries() -> None:
    places, queries = [Int8Rows.of(random(2, 9, 64), random(2, 9, 64, seed=1))], random(1, 2, 1, 64, seed=2)
    found = Int8Rows.attend(queries.bfloat16(), places)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), Int8Rows.attend(queries, places), atol=0.05, rtol=0.02)


@compiles
def test_it_is_near_what_all_digits_find() -> None:
    keys, values, queries = random(8, 1500, 64), random(8, 1500, 64, seed=1), random(1, 8, 1, 64, seed=2) / 8
    found, exact = (form.attend(queries, [form.of(keys, values)]) for form in (Int8Rows, Columns))
    assert (found - exact).norm() / exact.norm() < 0.02


def test_without_a_compiler_there_is_nothing_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    with caplog.at_level(logging.WARNING):
        assert compiled.__wrapped__("_int8_rows", 64) is None
    assert "_int8_rows.c was not compiled" in caplog.text


@compiles
def test_what_the_compiler_says_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert compiled.__wrapped__("no_such_source", 64) is None
    assert "kernels/no_such_source.c" in caplog.text


@compiles
def test_what_does_not_fit_is_refused() -> None:
    rows = random(2, 9, 64)
    with pytest.raises(ValueError, match="differ in shape"):
        Int8Rows.of(rows, rows[:, :8])
    places, queries = [Int8Rows.of(rows, rows)], random(1, 2, 1, 64)
    with pytest.raises(ValueError, match="2 heads of width 32"):
        Int8Rows.attend(queries[..., :32], places)
    for shape in ((1, 1, 1, 8), (1, 2, 1, 9), (2, 1, 1, 9)):
        with pytest.raises(ValueError, match="does not fit"):
            Int8Rows.attend(queries, places, torch.zeros(shape))
