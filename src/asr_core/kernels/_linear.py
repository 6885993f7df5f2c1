"""Products with fixed weights, laid out once in the order in which a processor reads them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

ROWS = 8
"""Rows the layout is chosen for: those of a decoder's step; more rows lose nothing by it."""


class PackedLinear(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """What :class:`torch.nn.Linear` of the same weights computes, for inputs of shape [..., n]; to infer only.

    ``weight`` of shape [m, n] is not kept beside its copy where oneDNN can read one of its own; of small inputs that
    takes half the time, as it is the weights that must come from memory.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._packed = weight.device.type == "cpu" and _packs(weight.dtype)
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight, ROWS)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``hidden`` times the weights, plus the bias: of shape [..., m]."""
        if not self._packed:
            return nn.functional.linear(hidden, self._weight, self._bias)
        return torch.ops.mkldnn._linear_pointwise(hidden, self._weight, self._bias, "none", [], "")


def pack_linears(module: Any, linear: type[nn.Module] = PackedLinear) -> None:
    """Replace every :class:`torch.nn.Linear` inside of ``module`` by a ``linear``; its weights are let go."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, linear(child.weight, child.bias))
        else:
            pack_linears(child, linear)


def _packs(dtype: torch.dtype) -> bool:
    """Whether this build of torch has the layouts; they are not part of its promised interface."""
    if not (hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and torch.backends.mkldnn.is_available()):
        return False
    if dtype == torch.bfloat16:
        # Without AVX-512, linear computes bfloat16 all the same, but oneDNN refuses to lay it out.
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(dtype == torch.float32)
