"""Sound in frames."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asr_core.types import Samples


def peaks(samples: Samples, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """The largest magnitude from each start up to the next, shape [starts]; nothing as long as ``samples`` is made."""
    return np.maximum(np.maximum.reduceat(samples, starts), -np.minimum.reduceat(samples, starts))
