"""Products in int8 are near those of linear, and of every row what they are of that row alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from asr_core.kernels import Int8Linear, Numbers, PackedLinear, _dtype, fastest_dtype, has_int8, pack_linears

pytestmark = pytest.mark.skipif(not has_int8(), reason="this torch, or this processor, has no products in int8")


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.double()).norm() / exact.double().norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(1, 512), (9, 512), (2, 3, 512), (300, 512)])
def test_products_are_near_those_of_linear(dtype: torch.dtype, biased: bool, shape: tuple[int, ...]) -> None:
    hidden, weight, bias = (x.to(dtype) for x in (random(*shape), random(257, 512), random(257)))
    found = Int8Linear(weight, bias if biased else None)(hidden)
    exact = linear(hidden.double(), weight.double(), bias.double() if biased else None)
    assert (found.shape, found.dtype) == (exact.shape, dtype)
    assert error(found, exact) < 0.03


def test_the_largest_sums_do_not_saturate() -> None:
    for sign in (1, -1):
        found = Int8Linear(torch.ones(16, 2048))(sign * torch.ones(3, 2048))
        torch.testing.assert_close(found, torch.full((3, 16), sign * 2048.0), rtol=1e-3, atol=0)


def test_a_row_is_what_it_is_alone() -> None:
    """Whatever its company: a hundred thousand times as large, or NaN."""
    product, rows = Int8Linear(random(64, 512), random(64)), random(5, 512)
    rows[1] *= 1e5
    rows[3, 7] = torch.nan
    together = product(rows)
    for number in (0, 1, 2, 4):
        assert torch.equal(together[number], product(rows[number : number + 1])[0])
    assert together[3].isnan().all()


def test_each_weight_has_a_scale_of_its_own() -> None:
    weight, hidden = random(64, 512), random(100, 512)
    weight[5] *= 1e4
    found, exact = Int8Linear(weight)(hidden), linear(hidden, weight)
    assert all(error(found[:, number], exact[:, number]) < 0.05 for number in range(64))


def test_zeros_come_to_the_bias_and_no_rows_to_none() -> None:
    product = Int8Linear(torch.cat([random(4, 33), torch.zeros(1, 33)]), bias := random(5))
    assert torch.equal(product(torch.zeros(2, 33)), bias.expand(2, 5))
    assert torch.equal(product(random(1, 33))[0, 4], bias[4])
    assert product(torch.empty(2, 0, 33)).shape == (2, 0, 5)


def test_inputs_may_lie_anyhow() -> None:
    wide, product = random(4, 6, 66), Int8Linear(random(5, 33), random(5))
    for hidden in (wide[..., ::2], wide[:, 2:, :33], wide.transpose(0, 1)[..., :33], random(33, 7).T):
        assert not hidden.is_contiguous()
        assert torch.equal(product(hidden), product(hidden.contiguous()))


def test_all_products_of_a_module_are() -> None:
    module = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Sequential(nn.Linear(32, 8, bias=False)))
    pack_linears(module, Int8Linear)
    assert [type(part) for part in (module[0], module[2][0])] == [Int8Linear, Int8Linear]


@pytest.mark.parametrize(("here", "fastest"), [({"avx2": True}, "int8"), ({"avx512_bf16": True}, "bfloat16")])
def test_it_is_the_fastest_without_instructions_for_bfloat16(
    monkeypatch: pytest.MonkeyPatch, here: Mapping[str, object], fastest: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: here, raising=False)
    assert fastest_dtype("cpu", int8=True) == fastest
    assert fastest_dtype("cuda", int8=True) == "bfloat16"
    assert Numbers.of("int8", "cpu") == Numbers(fastest_dtype("cpu"), Int8Linear)
    assert Numbers.of("float16", "cpu") == Numbers("float16", PackedLinear)
    monkeypatch.setattr(_dtype, "has_int8", lambda: False)
    assert fastest_dtype("cpu", int8=True) == fastest_dtype("cpu")
