"""One method carries a decoder: ``extend`` is prefill, chunk, step, reuse of keys and values, and probe.

The two adapters wrap modules that follow transformers' calling convention: ``cache=``, ``position_ids=`` and a
``last_hidden_state`` in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from attrs import frozen
from transformers import DynamicCache, EncoderDecoderCache

from asr_core.types import Tokens

PartOfRow: TypeAlias = Tokens | torch.Tensor


@frozen(eq=False)
class Row:
    """New positions of one slot: token runs or embeddings of shape [n, width], from position ``start`` on.

    What the slot held from ``start`` on is forgotten. ``want`` last positions are answered with logits.
    """

    slot: int
    start: int
    parts: tuple[PartOfRow, ...]
    want: int = 1


class Decoder(Protocol):
    """What the engine drives; slots are small integers of the engine's choosing, empty until first used."""

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """Let ``slot`` listen to encoder rows of shape [n, width], before its first extend."""

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """Float32 logits of shape [sum of want, vocabulary], in the order of rows."""

    def free(self, slot: int) -> None:
        """Forget everything about ``slot``; harmless for an empty one."""


class CausalDecoder:
    """A decoder-only language model fed by embeddings; audio rows stand in the prompt like words.

    ``module`` is the transformer without its head, ``head`` maps hidden states to logits.
    """

    def __init__(self, module: Any, head: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._module = module
        self._head = head
        self._embed = module.get_input_embeddings()
        self._caches: dict[int, DynamicCache] = {}

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """Refused: these models hear through their prompt."""
        raise TypeError("a causal decoder has no cross attention to bind")

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """See :class:`Decoder`."""
        return torch.cat([self._extend(row) for row in rows])

    def free(self, slot: int) -> None:
        """See :class:`Decoder`."""
        self._caches.pop(slot, None)

    def _extend(self, row: Row) -> torch.Tensor:
        cache = self._caches.setdefault(row.slot, DynamicCache(config=self._module.config))
        _rewind(cache, row.start)
        embeds = torch.cat([self._embed_part(part) for part in row.parts])
        hidden = self._module(
            inputs_embeds=embeds[None],
            position_ids=_positions(row.start, len(embeds), embeds.device),
            cache=cache,
            use_cache=True,
        ).last_hidden_state
        return self._head(hidden[0, len(embeds) - row.want :]).float()

    def _embed_part(self, part: PartOfRow) -> torch.Tensor:
        weight: torch.Tensor = self._embed.weight
        if isinstance(part, torch.Tensor):
            return part.to(weight.device, weight.dtype)
        embedded: torch.Tensor = self._embed(torch.tensor(part, dtype=torch.long, device=weight.device))
        return embedded


class CrossDecoder:
    """The decoder of an encoder-decoder model: token prompts, and audio through cross attention.

    ``module`` is the decoder without its head, ``head`` maps hidden states to logits.
    """

    def __init__(self, module: Any, head: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._module = module
        self._head = head
        self._caches: dict[int, EncoderDecoderCache] = {}
        self._encoded: dict[int, torch.Tensor] = {}

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """See :class:`Decoder`."""
        # Layers are made as they are first written: a configuration would give the decoder the encoder's depth.
        self._caches[slot] = EncoderDecoderCache(DynamicCache(), DynamicCache())
        weight = self._module.get_input_embeddings().weight
        self._encoded[slot] = encoded.to(weight.device, weight.dtype)

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """See :class:`Decoder`."""
        return torch.cat([self._extend(row) for row in rows])

    def free(self, slot: int) -> None:
        """See :class:`Decoder`."""
        self._caches.pop(slot, None)
        self._encoded.pop(slot, None)

    def _extend(self, row: Row) -> torch.Tensor:
        cache, encoded = self._caches[row.slot], self._encoded[row.slot]
        _rewind(cache.self_attention_cache, row.start)
        ids = torch.tensor([sum(row.parts, ())], device=encoded.device)
        hidden = self._module(
            input_ids=ids,
            position_ids=_positions(row.start, ids.shape[1], encoded.device),
            # Read on the first call only; later ones find the keys in the cache but skip cross attention without it.
            encoder_hidden_states=encoded[None],
            cache=cache,
            use_cache=True,
        ).last_hidden_state
        return self._head(hidden[0, ids.shape[1] - row.want :]).float()


def _positions(start: int, count: int, device: torch.device) -> torch.Tensor:
    return torch.arange(start, start + count, device=device)[None]


def _rewind(cache: DynamicCache, length: int) -> None:
    surplus = cache.get_seq_length() - length
    if surplus < 0:
        raise ValueError(f"a row starts at {length}, but its slot holds {cache.get_seq_length()} positions")
    if surplus:
        cache.crop(-surplus)
