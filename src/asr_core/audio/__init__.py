"""From uploaded bytes, or arrays, to one :class:`~asr_core.types.Waveform`: sniff, decode, downmix, resample."""

from __future__ import annotations

from asr_core.audio._array import from_array
from asr_core.audio._deadline import Watch
from asr_core.audio._frames import peaks
from asr_core.audio._load import is_audio, load
from asr_core.audio._read import read
from asr_core.audio._resample import Resampler
from asr_core.audio._sniff import SUPPORTED_FORMATS
from asr_core.audio._source import AudioSource

__all__ = ["SUPPORTED_FORMATS", "AudioSource", "Resampler", "Watch", "from_array", "is_audio", "load", "peaks", "read"]
