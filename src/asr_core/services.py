"""What a plugin may bring beside models and engines: aligners, which time words, and detectors of speech."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from asr_core.types import Clip, Samples, Word


class Aligner(Protocol):
    """Says when each word of a text was said; one that has ``close()`` is closed with its model."""

    def align(self, clip: Clip, text: str, language: str | None) -> Sequence[Word]:
        """Words of ``text`` in order, with times in milliseconds after the clip's start.

        ``text`` is what a model heard in ``clip``, stripped and never empty; the texts of the words in a row are all of
        it but for white space. ``language`` is a lower-case ISO 639 code, None where it is not known. ``clip`` has the
        rate of the model that heard it. Called on the compute thread, one call at a time, without gradients. The core
        keeps times in the clip and in order.

        Raises:
            AsrError: of a kind that says whose fault it is; anything else is the aligner's.
        """


@frozen
class AlignerCard:
    """An aligner by name. ``create(device, dtype)`` loads it at start-up, off any event loop, and may block.

    Settings of its own, a checkpoint's directory say, are environment variables that the plugin documents.
    """

    name: str
    summary: str
    create: Callable[[str, str], Aligner] = field(repr=False)


class VoiceDetector(Protocol):
    """Tells speech from what else sounds; stateless between calls, which come from several threads."""

    frame_s: float
    """Seconds that one score stands for."""

    def scores(self, samples: Samples, rate: int) -> npt.NDArray[np.float32]:
        """How sure of speech, 0 to 1, it is in each frame of ``samples``, shape [ceil(seconds / frame_s)].

        ``samples`` is all of the audio, hours perhaps: nothing as large is to be made of it. ``rate`` is the model's.

        Raises:
            AsrError: of a kind that says whose fault it is; anything else is the detector's.
        """


@frozen
class DetectorCard:
    """A detector by name. ``create()`` is called at start-up, off any event loop, and may block."""

    name: str
    summary: str
    create: Callable[[], VoiceDetector] = field(repr=False)


ServiceCard = AlignerCard | DetectorCard
