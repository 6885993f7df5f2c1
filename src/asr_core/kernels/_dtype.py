"""In which numbers a device computes fastest, and what products are made of in them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import frozen

from asr_core.kernels._int8 import Int8Linear, has_int8
from asr_core.kernels._linear import PackedLinear

BFLOAT16_UNITS = ("amx_bf16", "avx512_bf16", "bf16")
"""What :func:`torch.cpu.get_capabilities` calls instructions that multiply bfloat16: on x86 two, on Arm one."""

INT8 = "int8"


def fastest_dtype(device: str, *, int8: bool = False) -> str:
    """``bfloat16`` where the device has instructions for it, else ``int8`` if allowed and there, else ``float32``.

    Without such instructions bfloat16 is emulated, which takes longer than float32.
    """
    if not device.startswith("cpu"):
        return "bfloat16"
    # A torch that does not tell yet is taken for one on an old processor.
    here: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if any(here.get(unit) for unit in BFLOAT16_UNITS):
        return "bfloat16"
    return INT8 if int8 and has_int8() else "float32"


@frozen
class Numbers:
    """``dtype`` of weights and hidden states, one of torch's; ``linear`` makes a product of a weight and a bias."""

    dtype: str
    linear: type[PackedLinear] | type[Int8Linear] = PackedLinear

    @classmethod
    def of(cls, dtype: str, device: str) -> Numbers:
        """What a plugin is asked to load: of ``int8`` the products, the rest in what the device computes fastest."""
        return cls(fastest_dtype(device), Int8Linear) if dtype == INT8 else cls(dtype)
