"""Voice activity: detectors that tell speech from pauses."""

from asr_core.vad.energy import EnergyDetector

__all__ = ["EnergyDetector"]
