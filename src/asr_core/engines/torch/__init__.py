"""The embedded engine, and the two decoder adapters plugins wrap around their modules."""

from asr_core.engines.torch._decoders import CausalDecoder, CrossDecoder, Decoder, Row
from asr_core.engines.torch._engine import TorchEngine

__all__ = ["CausalDecoder", "CrossDecoder", "Decoder", "Row", "TorchEngine"]
