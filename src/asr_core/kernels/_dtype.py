"""In which numbers a device computes fastest."""

from __future__ import annotations

from collections.abc import Mapping

import torch

BFLOAT16_UNITS = ("amx_bf16", "avx512_bf16", "bf16")
"""What :func:`torch.cpu.get_capabilities` calls instructions that multiply bfloat16: on x86 two, on Arm one."""


def fastest_dtype(device: str) -> str:
    """``bfloat16`` where the device has instructions for it, else ``float32``.

    Without such instructions bfloat16 is emulated, which takes longer than float32.
    """
    if not device.startswith("cpu"):
        return "bfloat16"
    # A torch that does not tell yet is taken for one on an old processor.
    here: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if any(here.get(unit) for unit in BFLOAT16_UNITS) else "float32"
