"""The embedded engine, its builders, and what decoders are made of: two adapters for modules of others, and a base."""

from asr_core.engines.torch._adapters import CausalDecoder, CrossDecoder
from asr_core.engines.torch._batch import Batch, Row, padded_ids
from asr_core.engines.torch._decoders import AttentiveDecoder, BatchedDecoder, Decoder, SlotDecoder
from asr_core.engines.torch._engine import TorchEngine
from asr_core.engines.torch._limits import EngineLimits
from asr_core.engines.torch._listening import ListeningDecoder
from asr_core.engines.torch._memory import SlotLayer
from asr_core.engines.torch._workloads import AsrEngineBuilder, TextEngineBuilder

__all__ = [
    "AsrEngineBuilder",
    "AttentiveDecoder",
    "Batch",
    "BatchedDecoder",
    "CausalDecoder",
    "CrossDecoder",
    "Decoder",
    "EngineLimits",
    "ListeningDecoder",
    "Row",
    "SlotDecoder",
    "SlotLayer",
    "TextEngineBuilder",
    "TorchEngine",
    "padded_ids",
]
