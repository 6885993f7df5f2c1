"""The text decoder, for rows of many requests at once: nothing is computed twice, and little per token in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from asr_core.engines.torch import Batch, ListeningDecoder, Row, SlotLayer, padded_ids
from asr_core.kernels import Int8Linear, PackedLinear, attend
from asr_whisper.encoder import Linear, Mlp, fused_projection, join_heads, split_heads
from asr_whisper.window import Window


class WhisperDecoder(ListeningDecoder):
    """Computes what the decoder of transformers does whose weights it takes over; speaks the engine's protocol.

    ``head`` is the product with the vocabulary, ``audio_context`` the positions of a whole window.
    """

    def __init__(self, module: Any, head: nn.Linear, audio_context: int, linear: Linear = PackedLinear) -> None:
        self._embed, self._positions = module.embed_tokens.weight, module.embed_positions.weight
        super().__init__(linear(head.weight), self._embed, len(self._positions), int8=linear is Int8Linear)
        self._audio_context = audio_context
        self._layers = [DecoderLayer(layer, linear) for layer in module.layers]
        self._norm = module.layer_norm
        self._own = [self.memory.new_layer() for _ in self._layers]

    def bind(self, slot: int, encoded: torch.Tensor) -> None:
        """See :class:`~asr_core.engines.torch.Decoder`."""
        rows = encoded.to(self._embed.device, self._embed.dtype)[None]
        pairs = (layer.hears(rows) for layer in self._layers)
        self.heard.bind(slot, pairs, Window.of_rows(len(encoded), self._audio_context).bias(rows))

    def forward(self, rows: Sequence[Row], batch: Batch) -> torch.Tensor:
        """See :class:`~asr_core.engines.torch.ListeningDecoder`."""
        seen = self.watch(rows, batch)
        ids = padded_ids(rows, self._embed.device)
        hidden = self._embed[ids] + self._positions[batch.positions]
        for number, layer in enumerate(self._layers):
            hidden = hidden + layer.remember(hidden, self._own[number], batch.mask)
            queries = layer.asks(hidden)
            seen.look(number, queries)
            hidden = hidden + layer.heard_output(join_heads(self.heard.attend(number, queries)))
            hidden = hidden + layer.mlp(hidden)
        self.keep(seen)
        normed: torch.Tensor = self._norm(hidden)
        return normed


class DecoderLayer:
    """Attention to what was said, attention to what is heard, and two products."""

    def __init__(self, layer: Any, linear: Linear) -> None:
        own, heard = layer.self_attn, layer.encoder_attn
        self.heads = own.num_heads
        self.mlp = Mlp(layer, linear)
        self._own_norm, self._own = layer.self_attn_layer_norm, fused_projection(own, "qkv", linear)
        self._own_output = linear(own.out_proj.weight, own.out_proj.bias)
        self._heard_norm = layer.encoder_attn_layer_norm
        # The scale of the products is in the weights: exact, as the square root of a Whisper's width 64 is 8.
        scale = heard.head_dim**-0.5
        self._asks = linear(heard.q_proj.weight * scale, heard.q_proj.bias * scale)
        self._hears = fused_projection(heard, "kv", linear)
        self.heard_output = linear(heard.out_proj.weight, heard.out_proj.bias)

    def remember(self, hidden: torch.Tensor, memory: SlotLayer, mask: torch.Tensor) -> torch.Tensor:
        """To be added to ``hidden``, whose keys and values go to ``memory`` first."""
        queries, keys, values = split_heads(self._own(self._own_norm(hidden)), 3, self.heads)
        added: torch.Tensor = self._own_output(join_heads(attend(queries, *memory.update(keys, values), mask)))
        return added

    def asks(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scaled queries of shape [rows, heads, positions, width] to what is heard."""
        return split_heads(self._asks(self._heard_norm(hidden)), 1, self.heads)[0]

    def hears(self, encoded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of encoder rows of shape [1, n, width], each of shape [heads, n, width of a head]."""
        keys, values = split_heads(self._hears(encoded), 2, self.heads)
        return keys[0], values[0]
