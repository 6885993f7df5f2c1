"""The embedded engine for two workloads: a causal language model as it is, and a model opened by its plugin."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from attrs import evolve

from asr_core.engines.compute import Compute
from asr_core.engines.torch._adapters import CausalDecoder
from asr_core.engines.torch._batch import Row
from asr_core.engines.torch._decoders import Decoder, Head, SlotDecoder
from asr_core.engines.torch._engine import TorchEngine
from asr_core.engines.torch._limits import DEFAULT_LIMITS, EngineLimits
from asr_core.errors import EngineError
from asr_core.runtime.builder import GenerationEngineBuilder, Placement
from asr_core.types import LoadedModel


class TorchEngineBuilder(GenerationEngineBuilder[EngineLimits, Decoder]):
    """The steps that are the same whatever the decoder is for."""

    def __init__(self, compute: Compute, limits: EngineLimits) -> None:
        self._compute = compute
        self._limits = limits

    def arguments(self, resources: ExitStack) -> EngineLimits:
        """The limits, refused when nothing could ever run."""
        limits = self._limits
        if min(limits.max_running, limits.prefill_chunk) < 1 or limits.max_queued < 0 or limits.step_timeout_s <= 0:
            raise EngineError(f"nothing could run within {limits}")
        return limits

    @abstractmethod
    def placement(self, arguments: EngineLimits, resources: ExitStack) -> Placement:
        """Where the weights are."""

    @abstractmethod
    def decoder(self, arguments: EngineLimits, placement: Placement, resources: ExitStack) -> Decoder:
        """The adapter around the module."""

    def memory(self, arguments: EngineLimits, decoder: Decoder, resources: ExitStack) -> EngineLimits:
        """A decoder with memory for all slots says how long they are, and keeps what they hold."""
        if not isinstance(decoder, SlotDecoder):
            return arguments
        resources.callback(decoder.release)
        capacity = min(decoder.capacity, arguments.capacity or decoder.capacity)
        return evolve(arguments, capacity=capacity, keep_prefixes=True)

    def scheduler(self, arguments: EngineLimits, decoder: Decoder, release: Callable[[], None]) -> TorchEngine:
        """The engine on the compute thread."""
        return TorchEngine(decoder, self._compute, arguments, release)


class TextEngineBuilder(TorchEngineBuilder):
    """A causal language model: ``module`` without its head, and the ``head``."""

    def __init__(self, module: Any, head: Head, compute: Compute, limits: EngineLimits = DEFAULT_LIMITS) -> None:
        super().__init__(compute, limits)
        self._module = module
        self._head = head

    def placement(self, arguments: EngineLimits, resources: ExitStack) -> Placement:
        """See :class:`TorchEngineBuilder`."""
        weight = self._module.get_input_embeddings().weight
        return Placement(str(weight.device), str(weight.dtype).removeprefix("torch."))

    def decoder(self, arguments: EngineLimits, placement: Placement, resources: ExitStack) -> Decoder:
        """See :class:`TorchEngineBuilder`."""
        return CausalDecoder(self._module, self._head, capacity=arguments.capacity)

    def warm_up(self, decoder: Decoder, placement: Placement, resources: ExitStack) -> None:
        """One token: a head that does not fit the module is found before the first request."""
        self._compute.submit(self._try, decoder).result()

    @staticmethod
    def _try(decoder: Decoder) -> torch.Tensor:
        try:
            return decoder.extend([Row(0, 0, ((0,),))])
        finally:
            decoder.free(0)


class AsrEngineBuilder(TorchEngineBuilder):
    """A model opened by its plugin, which wrapped the decoder and chose where it lies."""

    def __init__(self, model: LoadedModel, compute: Compute, limits: EngineLimits = DEFAULT_LIMITS) -> None:
        super().__init__(compute, limits)
        self._model = model

    def placement(self, arguments: EngineLimits, resources: ExitStack) -> Placement:
        """See :class:`TorchEngineBuilder`."""
        return Placement(self._model.device, self._model.dtype)

    def decoder(self, arguments: EngineLimits, placement: Placement, resources: ExitStack) -> Decoder:
        """See :class:`TorchEngineBuilder`."""
        decoder: Decoder | None = self._model.weights.decoder
        if decoder is None:
            raise EngineError(f"{self._model.card.name}: no decoder was loaded")
        return decoder
