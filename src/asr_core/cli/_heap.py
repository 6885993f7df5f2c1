"""How this process, which is ours alone, keeps memory between two forwards."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Numbers of glibc's malloc.h."""

MAPPED = 32 << 20
"""Bytes from which a block is the system's again once it is free; the most that glibc takes."""

KEPT = 128 << 20
"""Bytes that stay ours at the end of the heap: more than the values between two products of a forward."""


def keep_heap() -> None:
    """One heap for all threads, which keeps what is freed; does nothing where the C library is not glibc.

    A forward frees and asks for the same megabytes hundreds of times. Given back each time they come as pages that are
    cleared first, which took an eighth of an encoder's time, and a heap per thread keeps as much for each.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_THRESHOLD, MAPPED)
    mallopt(M_TRIM_THRESHOLD, KEPT)
