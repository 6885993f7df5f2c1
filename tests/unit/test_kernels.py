"""The kernels compute what torch's own functions compute, whatever shape they are given."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention

from asr_core.kernels import Columns, PackedLinear, _linear, attend, fastest_dtype, pack_linears
from asr_core.kernels._attention import BLOCK, FEW, SHORT

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_near(found: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, roundings: float = 4) -> None:
    """Of this dtype and as near to ``exact`` as it can be, measured by the largest number: sums cancel."""
    assert found.dtype == dtype
    assert found.shape == exact.shape
    allowed = roundings * max(torch.finfo(dtype).eps, 1e-6) * float(exact.abs().max())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=allowed)


def assert_linear(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    exact = linear(hidden.double(), weight.double(), None if bias is None else bias.double())
    assert_near(PackedLinear(weight, bias)(hidden), exact, hidden.dtype)


@DTYPES
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("width", "outputs"), [(1, 1), (33, 97), (64, 32), (100, 257), (512, 7)])
def test_products_are_those_of_linear(dtype: torch.dtype, biased: bool, width: int, outputs: int) -> None:
    weight, bias = random(outputs, width, dtype=dtype), random(outputs, dtype=dtype) if biased else None
    for rows in (1, 2, 3, 7, 8, 9, 16, 31, 40):
        assert_linear(random(rows, width, dtype=dtype), weight, bias)


@DTYPES
@pytest.mark.parametrize("shape", [(2, 3, 33), (1, 40, 33), (2, 1, 4, 33), (33,)])
def test_leading_dimensions_are_kept(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    assert_linear(random(*shape, dtype=dtype), random(5, 33, dtype=dtype), random(5, dtype=dtype))


@DTYPES
def test_inputs_may_lie_anyhow(dtype: torch.dtype) -> None:
    wide = random(4, 6, 66, dtype=dtype)
    rows = random(33, 7, dtype=dtype)
    for hidden in (wide[..., ::2], wide[:, 2:, :33], wide[:, ::3, 33:], wide.transpose(0, 1)[..., :33], rows.T):
        assert not hidden.is_contiguous()
        assert_linear(hidden, random(5, 33, dtype=dtype), random(5, dtype=dtype))
    assert_linear(random(1, 33, dtype=dtype).expand(5, 33), random(5, 33, dtype=dtype), None)


@DTYPES
@pytest.mark.parametrize("shape", [(0, 33), (2, 0, 33)])
def test_of_no_rows_there_are_none(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """The head of a forward in which nobody wants logits."""
    product = PackedLinear(random(5, 33, dtype=dtype))(torch.empty(shape, dtype=dtype))
    assert product.shape == (*shape[:-1], 5)


@DTYPES
def test_weights_may_lie_anyhow_and_are_read_once(dtype: torch.dtype) -> None:
    weight, hidden = random(33, 5, dtype=dtype).T, random(3, 33, dtype=dtype)
    product = PackedLinear(weight)
    before = product(hidden)
    assert_near(before, linear(hidden.double(), weight.double()), dtype)
    if product._packed:
        weight.zero_()
        torch.testing.assert_close(product(hidden), before, rtol=0, atol=0)


def test_where_there_are_no_layouts_it_is_linear_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_linear, "_packs", lambda dtype: False)
    product, hidden = PackedLinear(random(5, 33), random(5)), random(3, 33)
    assert not product._packed
    assert torch.equal(product(hidden), linear(hidden, random(5, 33), random(5)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_without_avx512_bfloat16_is_not_laid_out(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    product = PackedLinear(random(5, 33, dtype=dtype))
    assert not (dtype == torch.bfloat16 and product._packed)
    assert_near(
        product(random(3, 33, dtype=dtype)),
        linear(*(x.double() for x in (random(3, 33, dtype=dtype), random(5, 33, dtype=dtype)))),
        dtype,
    )


def test_no_gradients_are_kept_of_weights() -> None:
    source = nn.Linear(33, 5)
    assert not PackedLinear(source.weight, source.bias)(random(3, 33)).requires_grad


class Named(nn.Linear):
    """A product of a kind of its own, which may compute anything."""


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.rest = nn.ModuleList([nn.Sequential(nn.Linear(32, 32, bias=False), nn.GELU()), Named(32, 32)])
        self.norm = nn.LayerNorm(32)
        self.nothing = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.first(hidden)
        for part in self.rest:
            hidden = hidden + part(hidden)
        normed: torch.Tensor = self.norm(hidden)
        return normed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_all_products_of_a_module_are_packed_and_nothing_else(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module, hidden = Nested().to(dtype), random(2, 9, 16, dtype=dtype)
    before, named = module(hidden), module.rest[1]
    pack_linears(module)
    assert not [name for name, part in module.named_modules() if type(part) is nn.Linear]
    assert [name for name, part in module.named_modules() if isinstance(part, PackedLinear)] == ["first", "rest.0.0"]
    assert module.rest[1] is named
    torch.testing.assert_close(module(hidden), before, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)
    packed = module(hidden)
    pack_linears(module)
    assert torch.equal(module(hidden), packed)


QUERIES = (1, 2, FEW, FEW + 1, 40, BLOCK, BLOCK + 1, 2 * BLOCK + 17)


@DTYPES
@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("masked", ["no", "for all", "for each"])
def test_attention_is_that_of_the_fused_kernel(dtype: torch.dtype, queries: int, masked: str) -> None:
    rows, heads, keys, width = 3, 2, 301, 16
    asked = random(rows, heads, queries, width, dtype=dtype)
    known, said = random(rows, heads, keys, width, dtype=dtype), random(rows, heads, keys, width + 8, dtype=dtype)
    mask = None
    if masked != "no":
        seen = random(rows, 1, queries if masked == "for each" else 1, keys) > 0
        seen[..., 0] = True
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
    exact = scaled_dot_product_attention(
        asked.double(), known.double(), said.double(), attn_mask=None if mask is None else mask.double()
    )
    assert_near(attend(asked, known, said, mask), exact, dtype)


@DTYPES
@pytest.mark.parametrize("keys", [1, SHORT // 2, SHORT // 2 + 1, 301])
@pytest.mark.parametrize("queries", [1, 2, BLOCK + 1])
def test_scaled_queries_are_not_scaled_again(dtype: torch.dtype, keys: int, queries: int) -> None:
    asked, known, said = (random(2, 3, count, 16, dtype=dtype) for count in (queries, keys, keys))
    mask = torch.zeros(2, 1, 1, keys, dtype=dtype)
    for scale in (1, 0.5):
        exact = scaled_dot_product_attention(asked.double(), known.double(), said.double(), scale=scale)
        # An error of the products is an error of the weights as many times as large.
        for masked in (None, mask):
            assert_near(attend(asked, known, said, masked, scale=scale), exact, dtype, roundings=16)


@DTYPES
def test_attention_changes_nothing_it_is_given(dtype: torch.dtype) -> None:
    shape = (1, 2, 2 * BLOCK, 8)
    given = [random(*shape, dtype=dtype), random(*shape, dtype=dtype), random(*shape, dtype=dtype)]
    kept = [tensor.clone() for tensor in given]
    attend(*given, torch.zeros(1, 1, 1, 2 * BLOCK, dtype=dtype))
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(given, kept, strict=True))


def test_attention_reads_views_of_a_memory() -> None:
    """Heads beside each other in memory, as a fused product leaves them, and the first places of a longer tensor."""
    fused = random(2, 3, 3, 4, 8)
    asked, known, said = fused.permute(2, 0, 3, 1, 4).unbind(0)
    torch.testing.assert_close(attend(asked, known, said), scaled_dot_product_attention(asked, known, said))
    memory = random(5, 4, 64, 8)
    known = memory[1:3, :, :19]
    torch.testing.assert_close(attend(asked, known, known), scaled_dot_product_attention(asked, known, known))


@DTYPES
@pytest.mark.parametrize("queries", [1, FEW + 1])
def test_rows_may_have_columns_of_their_own(dtype: torch.dtype, queries: int) -> None:
    """Of different lengths; the mask hides what is behind the shorter one, and counts a key twice."""
    lengths, asked = (200, 70), random(2, 3, queries, 16, dtype=dtype)
    known, said = ([random(3, length, 16, dtype=dtype) for length in lengths] for _ in "kv")
    mask = torch.zeros(2, 1, 1, max(lengths), dtype=dtype)
    mask[:, ..., 5] = 0.7
    mask[1, ..., lengths[1] :] = torch.finfo(dtype).min
    places = [Columns.of(keys, values) for keys, values in zip(known, said, strict=True)]
    for row, found in enumerate(Columns.attend(asked / 4, places, mask)):
        wide = (one[row].double() for one in (asked, known, said))
        exact = scaled_dot_product_attention(*wide, attn_mask=mask[row, 0, :, : lengths[row]].double())
        assert_near(found, exact, dtype, roundings=8)


@pytest.mark.parametrize(
    ("here", "fastest"),
    [
        ({"amx_bf16": True}, "bfloat16"),
        ({"amx_bf16": False, "avx512_bf16": True, "architecture": "x86_64"}, "bfloat16"),
        ({"bf16": True, "architecture": "aarch64"}, "bfloat16"),
        ({"amx_bf16": False, "avx512_bf16": False, "avx512_f": True, "amx_int8": True}, "float32"),
        ({"bf16": False, "neon": True}, "float32"),
        ({}, "float32"),
    ],
)
def test_the_fastest_dtype_goes_by_instructions(
    monkeypatch: pytest.MonkeyPatch, here: Mapping[str, object], fastest: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: here)
    assert fastest_dtype("cpu") == fastest
    assert fastest_dtype("cpu:0") == fastest
    assert fastest_dtype("cuda") == fastest_dtype("cuda:1") == "bfloat16"
