"""Keys and values in int8: a quarter of float32's to read for every token, which is what reading them costs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from attrs import frozen

from asr_core.kernels._native import compiled


class _Place(ctypes.Structure):
    """The ``place`` of the source."""

    _fields_ = (
        ("length", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "key_scales", "value_scales", "mask")),
    )


@frozen(eq=False)
class Int8Rows:
    """Keys and values of one place, of shape [heads, n, width]; each row is multiplied by its scale, of [heads, n].

    A row is off by at most a 254th of its largest number, or zero where that is below 1e-35.
    """

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor
    value_scales: torch.Tensor

    @classmethod
    def of(cls, keys: torch.Tensor, values: torch.Tensor) -> Int8Rows:
        """Of rows in any dtype; NaN makes the scale of its row NaN, and so what is found there.

        Raises:
            ValueError: keys and values are not of one shape.
        """
        if keys.shape != values.shape:
            raise ValueError(f"keys {tuple(keys.shape)} and values {tuple(values.shape)} differ in shape")
        (keys, key_scales), (values, value_scales) = _quantised(keys), _quantised(values)
        return cls(keys, values, key_scales, value_scales)

    @property
    def rows(self) -> torch.Tensor:
        """The keys, float32 of shape [heads, n, width]."""
        return self.keys * self.key_scales[..., None]

    @classmethod
    def attend(
        cls, queries: torch.Tensor, places: Sequence[Int8Rows], mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Columns.attend <asr_core.kernels.Columns.attend>`; ``mask`` is of shape [rows, 1, 1, longest].

        Raises:
            ValueError: places or mask do not fit the queries.
        """
        rows, heads, positions, width = queries.shape
        longest = max(place.keys.shape[1] for place in places)
        if any(place.keys.shape[::2] != (heads, width) for place in places):
            raise ValueError(f"not every place has {heads} heads of width {width}")
        if mask is not None and (mask.shape[:3] != (rows, 1, 1) or mask.shape[3] < longest):
            raise ValueError(f"a mask {tuple(mask.shape)} does not fit {rows} rows of up to {longest} keys")
        asked = queries.float().contiguous()
        found = torch.empty_like(asked)
        masks = [None] * rows if mask is None else _finite(mask).flatten(1).contiguous().unbind()
        read = (_Place * rows)(*(place._read(own) for place, own in zip(places, masks, strict=True)))
        sizes = map(ctypes.c_int64, (rows, heads, positions))
        _library(width).attend(*sizes, read, _at(asked), _at(found), torch.get_num_threads())
        return found.to(queries.dtype)

    def _read(self, mask: torch.Tensor | None) -> _Place:
        tensors = (self.keys, self.values, self.key_scales, self.value_scales, mask)
        return _Place(self.keys.shape[1], *map(_at, tensors))


def has_int8_rows(width: int) -> bool:
    """Whether there is a compiler to build what computes on rows of ``width``; the first answer takes 0.25 s."""
    return compiled("_int8_rows", width) is not None


def _finite(mask: torch.Tensor) -> torch.Tensor:
    """Of infinities, the source promises nothing."""
    return mask.float().clamp_min(torch.finfo(torch.float32).min)


def _quantised(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = rows.float().contiguous()
    numbers, scales = torch.empty_like(rows, dtype=torch.int8), rows.new_empty(rows.shape[:-1])
    count = ctypes.c_int64(scales.numel())
    _library(rows.shape[-1]).quantise(count, _at(rows), _at(numbers), _at(scales), torch.get_num_threads())
    return numbers, scales


def _library(width: int) -> ctypes.CDLL:
    library = compiled("_int8_rows", width)
    if library is None:
        raise RuntimeError("attention in int8 wants a C compiler")
    return library


def _at(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
