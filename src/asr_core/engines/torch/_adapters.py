"""The adapters that plugins wrap around modules of others.

These follow transformers' calling convention: ``cache=``, ``position_ids=``, a 4-D ``attention_mask`` and a
``last_hidden_state`` in the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from asr_core.engines.torch._attention import Attention
from asr_core.engines.torch._batch import Batch, Row, padded_ids
from asr_core.engines.torch._decoders import BatchedDecoder, Head
from asr_core.engines.torch._listening import ListeningDecoder
from asr_core.errors import EngineMismatchError

MASKED = ("sdpa", "eager")
"""Implementations of attention that take an additive mask of any shape."""


class ModuleDecoder(BatchedDecoder):
    """What both adapters share.

    ``capacity`` is by default what the module was built for.

    Raises:
        EngineMismatchError: the module keeps something else than keys of all positions, or hides its attention.
    """

    def __init__(self, module: Any, head: Head, *, capacity: int | None = None) -> None:
        _check(module)
        self._module = module
        self._embed = module.get_input_embeddings()
        positions = _positions(module.config)
        super().__init__(head, self._embed.weight, min(positions, capacity or positions))
        self._cache = Cache(layer_class_to_replicate=self.memory.new_layer)

    def _run(self, batch: Batch, cache: Any, **inputs: Any) -> torch.Tensor:
        states: torch.Tensor = self._module(
            # Every mask and position is explicit: what a module makes up for ragged rows is silently wrong.
            attention_mask=batch.mask,
            position_ids=batch.positions,
            cache=cache,
            use_cache=True,
            **inputs,
        ).last_hidden_state
        return states


class CausalDecoder(ModuleDecoder):
    """A decoder-only language model fed by embeddings; encoder rows stand in the prompt like words.

    ``module`` is the transformer without its head, ``head`` maps hidden states to logits.
    """

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """Refused: these models hear through their prompt."""
        raise TypeError("a causal decoder has no cross attention to bind")

    def forward(self, rows: Sequence[Row], batch: Batch) -> torch.Tensor:
        weight = self._embed.weight
        embeds = self._embed(padded_ids(rows, weight.device))
        for number, row in enumerate(rows):
            for offset, part in row.embeddings():
                embeds[number, offset : offset + len(part)] = part.to(weight.device, weight.dtype)
        return self._run(batch, self._cache, inputs_embeds=embeds)


class CrossDecoder(ModuleDecoder, ListeningDecoder):
    """The decoder of an encoder-decoder model: token prompts, and encoder rows through cross attention.

    ``module`` is the decoder without its head, ``head`` maps hidden states to logits.

    Raises:
        EngineMismatchError: no part of the module takes ``key_value_states``.
    """

    attends = False

    def __init__(self, module: Any, head: Head, *, capacity: int | None = None) -> None:
        super().__init__(module, head, capacity=capacity)
        self._crossed = Cache(layer_class_to_replicate=self.memory.new_layer)
        self._crossed.layers = self.heard.layers
        self._attention: Attention | None = None
        attentions = [part for part in module.modules() if "key_value_states" in _parameters(part)]
        if not attentions:
            raise EngineMismatchError(f"{type(module).__name__} has no cross attention that could be masked")
        for attention in attentions:
            attention.register_forward_pre_hook(self._before_cross, with_kwargs=True)

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """See :class:`Decoder`; a step whose own keys are thrown away computes what cross attention reads."""
        weight = self._embed.weight
        seen = EncoderDecoderCache(DynamicCache(), DynamicCache())
        token = torch.zeros(1, 1, dtype=torch.long, device=weight.device)
        rows = encoded.to(weight.device, weight.dtype)[None]
        self._module(input_ids=token, position_ids=token, encoder_hidden_states=rows, cache=seen, use_cache=True)
        self.heard.bind(slot, ((layer.keys[0], layer.values[0]) for layer in seen.cross_attention_cache.layers))

    def forward(self, rows: Sequence[Row], batch: Batch) -> torch.Tensor:
        """See :class:`BatchedDecoder`."""
        self._attention = self.watch(rows, batch)
        ids = padded_ids(rows, batch.positions.device)
        cache = EncoderDecoderCache(self._cache, self._crossed)
        cache.is_updated = dict.fromkeys(range(len(self.heard.layers)), True)
        try:
            # Its keys are in the cache; without any states at all the module would skip cross attention silently.
            stub = batch.mask.new_zeros(1).expand(len(rows), max(self._attention.lengths), 1)
            states = self._run(batch, cache, input_ids=ids, encoder_hidden_states=stub)
            self.keep(self._attention)
            return states
        finally:
            self._attention = None

    def _before_cross(self, module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        if self._attention is None or kwargs.get("key_value_states") is None:
            return None
        if any(row.attend for row in self._attention.rows):
            hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            queries = (module.q_proj(hidden) * module.scaling).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
            self._attention.look(module.layer_idx, queries)
        # Modules pass no mask for encoder rows on, so it is handed to their cross attention from outside.
        return None if self.heard.mask is None else (args, {**kwargs, "attention_mask": self.heard.mask})


def _parameters(module: Any) -> frozenset[str]:
    return frozenset(inspect.signature(module.forward).parameters)


def _check(module: Any) -> None:
    kinds = {type(layer) for layer in DynamicCache(config=module.config).layers}
    if kinds != {DynamicLayer}:
        named = ", ".join(sorted(kind.__name__ for kind in kinds - {DynamicLayer}))
        raise EngineMismatchError(f"{type(module).__name__} needs more than keys of all positions: {named}")
    if module.config._attn_implementation not in MASKED:
        raise EngineMismatchError(f"attention {module.config._attn_implementation!r} takes no additive mask")


def _positions(config: Any) -> int:
    for name in ("max_target_positions", "max_position_embeddings"):
        if positions := getattr(config, name, None):
            return int(positions)
    raise EngineMismatchError(f"{type(config).__name__} does not say how many positions it has")
