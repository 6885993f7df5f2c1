"""Products and attention as processors do them fastest; nothing here knows a model."""

from asr_core.kernels._attention import attend, reads_stretches
from asr_core.kernels._columns import Columns
from asr_core.kernels._dtype import INT8, Numbers, fastest_dtype
from asr_core.kernels._int8 import Int8Linear, has_int8
from asr_core.kernels._int8_rows import Int8Rows, has_int8_rows
from asr_core.kernels._linear import PackedLinear, pack_linears

__all__ = [
    "INT8",
    "Columns",
    "Int8Linear",
    "Int8Rows",
    "Numbers",
    "PackedLinear",
    "attend",
    "fastest_dtype",
    "has_int8",
    "has_int8_rows",
    "pack_linears",
    "reads_stretches",
]
