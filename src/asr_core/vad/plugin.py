"""The in-tree plugin that registers the detectors, through the same hook as everybody's."""

from __future__ import annotations

from collections.abc import Callable

from asr_core.hookspecs import hookimpl
from asr_core.services import DetectorCard, ServiceCard, VoiceDetector
from asr_core.vad.energy import EnergyDetector


def create_silero() -> VoiceDetector:
    """Look for the packages of the extra only when it is asked for."""
    from asr_core.vad.silero import SileroDetector

    return SileroDetector()


ENERGY = DetectorCard(
    name="energy", summary="how loud it is, compared with the rest of the audio", create=EnergyDetector
)
SILERO = DetectorCard(name="silero", summary="a recurrent network; needs asr-core[silero]", create=create_silero)


@hookimpl
def register_services(register: Callable[[ServiceCard], None]) -> None:
    """What is there without any plugin, and what an extra makes work."""
    register(ENERGY)
    register(SILERO)
