"""Products and attention as processors do them fastest; nothing here knows a model."""

from asr_core.kernels._attention import attend, attend_each, reads_columns, reads_stretches
from asr_core.kernels._dtype import INT8, Numbers, fastest_dtype
from asr_core.kernels._int8 import Int8Linear, has_int8
from asr_core.kernels._linear import PackedLinear, pack_linears

__all__ = [
    "INT8",
    "Int8Linear",
    "Numbers",
    "PackedLinear",
    "attend",
    "attend_each",
    "fastest_dtype",
    "has_int8",
    "pack_linears",
    "reads_columns",
    "reads_stretches",
]
