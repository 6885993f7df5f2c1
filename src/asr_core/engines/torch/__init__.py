"""The embedded engine, its builders, and the two decoder adapters plugins wrap around their modules."""

from asr_core.engines.torch._adapters import CausalDecoder, CrossDecoder
from asr_core.engines.torch._batch import Row
from asr_core.engines.torch._decoders import AttentiveDecoder, Decoder, SlotDecoder
from asr_core.engines.torch._engine import TorchEngine
from asr_core.engines.torch._limits import EngineLimits
from asr_core.engines.torch._workloads import AsrEngineBuilder, TextEngineBuilder

__all__ = [
    "AsrEngineBuilder",
    "AttentiveDecoder",
    "CausalDecoder",
    "CrossDecoder",
    "Decoder",
    "EngineLimits",
    "Row",
    "SlotDecoder",
    "TextEngineBuilder",
    "TorchEngine",
]
