"""Products and attention as processors do them fastest; nothing here knows a model."""

from asr_core.kernels._attention import attend, reads_stretches
from asr_core.kernels._dtype import fastest_dtype
from asr_core.kernels._linear import PackedLinear, pack_linears

__all__ = ["PackedLinear", "attend", "fastest_dtype", "pack_linears", "reads_stretches"]
