"""Past the core's guards, for tests that compare all a model says with what another program makes of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from asr_core import account
from asr_core.runtime import loops


@contextmanager
def without_guards() -> Iterator[None]:
    """Neither loops nor missing text are noticed meanwhile: small random weights repeat themselves all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "REPEATS", 10**6)
        patch.setattr(account, "GAP_MS", 10**6)
        patch.setattr(account, "RATED_MS", 10**6)
        yield
