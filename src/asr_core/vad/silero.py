"""The detector of the package ``silero-vad``, a small recurrent network, run by onnxruntime.

The package itself is not imported: that would set the number of threads of torch for the whole process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asr_core.audio import Resampler
from asr_core.errors import PluginError
from asr_core.types import Samples

RATE = 16000
FRAME = 512
CONTEXT = 64
"""Samples of the frame before that the network hears again."""
STATE = (1, 1, 128)
BATCH = 512
"""Frames per call: 16 s, a megabyte, and a millisecond of Python for fifty of the network."""
WEIGHTS = Path("data", "silero_vad_16k_sequence.onnx")
INSTALL = 'the detector "silero" needs packages that are not installed: pip install "asr-core[silero]"'


class SileroDetector:
    """Scores frames of 32 ms at 16 kHz, whatever the rate of the audio; the network is shared by all calls."""

    frame_s = FRAME / RATE

    def __init__(self) -> None:
        """Load the network.

        Raises:
            PluginError: the packages of the extra are not there.
        """
        self._session = _open(_weights())

    def scores(self, samples: Samples, rate: int) -> npt.NDArray[np.float32]:
        """The network's probability of speech in each frame, shape [ceil(seconds / 0.032)]."""
        names = ["speech_probs", "hn", "cn"]
        hidden = cell = np.zeros(STATE, np.float32)
        context = np.zeros(CONTEXT, np.float32)
        scores = [np.zeros(0, np.float32)]
        for frames in _batches(samples, rate):
            before = np.vstack((context, frames[:-1, -CONTEXT:]))
            heard = {"input": np.hstack((before, frames)), "h": hidden, "c": cell}
            score, hidden, cell = self._session.run(names, heard)
            context = frames[-1, -CONTEXT:]
            scores.append(score)
        return np.concatenate(scores)


def _weights() -> Path:
    spec = importlib.util.find_spec("silero_vad")
    for place in (spec and spec.submodule_search_locations) or ():
        if (file := Path(place, WEIGHTS)).is_file():
            return file
    raise PluginError(INSTALL)


def _open(weights: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise PluginError(INSTALL) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the cores are the models'
    return onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def _batches(samples: Samples, rate: int) -> Iterator[Samples]:
    """Frames of 16 kHz, shape [BATCH or fewer, FRAME]; silence fills the last."""
    held = np.zeros(0, np.float32)
    for block in _resampled(samples, rate):
        held = np.concatenate((held, block))
        while len(held) >= BATCH * FRAME:
            yield held[: BATCH * FRAME].reshape(BATCH, FRAME)
            held = held[BATCH * FRAME :]
    if len(held):
        yield np.pad(held, (0, -len(held) % FRAME)).reshape(-1, FRAME)


def _resampled(samples: Samples, rate: int) -> Iterator[Samples]:
    resampler = Resampler(rate, RATE)
    for first in range(0, len(samples), 16 * rate):
        yield resampler.push(samples[first : first + 16 * rate])
    yield from resampler.flush()
