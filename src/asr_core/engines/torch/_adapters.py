"""The decoder adapters plugins wrap around their modules."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache

from asr_core.engines.torch._attention import Attention
from asr_core.engines.torch._batch import Batch, Row, additive_mask, padded_ids
from asr_core.engines.torch._decoders import BatchedDecoder, Head
from asr_core.errors import EngineMismatchError


class CausalDecoder(BatchedDecoder):
    """A decoder-only language model fed by embeddings; encoder rows stand in the prompt like words.

    ``module`` is the transformer without its head, ``head`` maps hidden states to logits.
    """

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """Refused: these models hear through their prompt."""
        raise TypeError("a causal decoder has no cross attention to bind")

    def _forward(self, rows: Sequence[Row], batch: Batch) -> torch.Tensor:
        weight = self._embed.weight
        embeds = self._embed(padded_ids(rows, weight.device))
        for number, row in enumerate(rows):
            for offset, part in row.embeddings():
                embeds[number, offset : offset + len(part)] = part.to(weight.device, weight.dtype)
        return self._run(batch, self._cache, inputs_embeds=embeds)


class CrossDecoder(BatchedDecoder):
    """The decoder of an encoder-decoder model: token prompts, and encoder rows through cross attention.

    ``module`` is the decoder without its head, ``head`` maps hidden states to logits.

    Raises:
        EngineMismatchError: no part of the module takes ``key_value_states``.
    """

    def __init__(self, module: Any, head: Head, *, capacity: int | None = None) -> None:
        super().__init__(module, head, capacity=capacity)
        self._crossed = Cache(layer_class_to_replicate=self._memory.new_layer)
        self._heard: dict[int, int] = {}
        self._mask: torch.Tensor | None = None
        self._attention: Attention | None = None
        self._attended: dict[int, torch.Tensor] = {}
        attentions = [part for part in module.modules() if "key_value_states" in _parameters(part)]
        if not attentions:
            raise EngineMismatchError(f"{type(module).__name__} has no cross attention that could be masked")
        for attention in attentions:
            attention.register_forward_pre_hook(self._before_cross, with_kwargs=True)

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """See :class:`Decoder`; a step whose own keys are thrown away computes what cross attention reads."""
        self._memory.rewind(slot, 0, 0)
        weight = self._embed.weight
        seen = EncoderDecoderCache(DynamicCache(), DynamicCache())
        token = torch.zeros(1, 1, dtype=torch.long, device=weight.device)
        rows = encoded.to(weight.device, weight.dtype)[None]
        self._module(input_ids=token, position_ids=token, encoder_hidden_states=rows, cache=seen, use_cache=True)
        while len(self._crossed.layers) < len(seen.cross_attention_cache.layers):
            self._crossed.layers.append(self._memory.new_layer())
        for layer, new in zip(self._crossed.layers, seen.cross_attention_cache.layers, strict=True):
            layer.store(self._memory.place(slot), new.keys, new.values)
        self._heard[slot] = len(encoded)

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """See :class:`BatchedDecoder`."""
        self._attended.clear()
        return super().extend(rows)

    def attended(self, slot: int) -> torch.Tensor:
        """See :class:`AttentiveDecoder`."""
        return self._attended[slot]

    def free(self, slot: int) -> None:
        """See :class:`Decoder`."""
        super().free(slot)
        self._heard.pop(slot, None)

    def release(self) -> None:
        """See :class:`SlotDecoder`."""
        super().release()
        self._heard.clear()
        self._attended.clear()

    def _forward(self, rows: Sequence[Row], batch: Batch) -> torch.Tensor:
        if any(True for row in rows for _ in row.embeddings()):
            raise TypeError("a decoder with cross attention takes tokens only")
        ids = padded_ids(rows, batch.positions.device)
        cache = EncoderDecoderCache(self._cache, self._crossed)
        cache.is_updated = dict.fromkeys(range(len(self._crossed.layers)), True)
        try:
            longest = self._listen(rows, batch)
            self._attention = Attention.of(rows, [self._heard[row.slot] for row in rows], self._crossed.layers)
            # Its keys are in the cache; without any states at all the module would skip cross attention silently.
            stub = batch.mask.new_zeros(1).expand(len(rows), longest, 1)
            states = self._run(batch, cache, input_ids=ids, encoder_hidden_states=stub)
            self._attended.update(self._attention.by_slot())
            return states
        finally:
            self._mask = self._attention = None

    def _listen(self, rows: Sequence[Row], batch: Batch) -> int:
        """Show each row its encoder's keys, masked behind the end of shorter ones; the longest length."""
        if unbound := [row.slot for row in rows if row.slot not in self._heard]:
            raise ValueError(f"slots {unbound} were never bound to encoder rows")
        lengths = [self._heard[row.slot] for row in rows]
        longest = max(lengths)
        if min(lengths) < longest:
            seen = torch.arange(longest) < torch.tensor(lengths)[:, None, None, None]
            self._mask = additive_mask(seen.to(batch.mask.device), batch.mask.dtype)
        for layer in self._crossed.layers:
            layer.show(batch.places, longest)
        return longest

    def _before_cross(self, module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        if kwargs.get("key_value_states") is None:
            return None
        if self._attention is not None:
            self._attention.look(module, kwargs["hidden_states"] if "hidden_states" in kwargs else args[0])
        # Modules pass no mask for encoder rows on, so it is handed to their cross attention from outside.
        return None if self._mask is None else (args, {**kwargs, "attention_mask": self._mask})


def _parameters(module: Any) -> frozenset[str]:
    return frozenset(inspect.signature(module.forward).parameters)
