"""The audio encoder: convolutions as products, one product for queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu, pad

from asr_core.kernels import PackedLinear, attend
from asr_whisper.window import Window

Linear = Callable[..., nn.Module]
"""Makes a product of a weight and a bias: see :class:`asr_core.kernels.Numbers`."""


class Encoder(nn.Module):
    """Computes what the encoder of transformers does whose weights it takes over."""

    def __init__(self, module: Any, linear: Linear = PackedLinear) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([Convolution(module.conv1, linear), Convolution(module.conv2, linear)])
        self.positions = module.embed_positions.weight
        self.layers = nn.ModuleList([EncoderLayer(layer, linear) for layer in module.layers])
        self.norm = module.layer_norm

    def in_parts(self, mels: torch.Tensor, window: Window) -> Generator[None, None, torch.Tensor]:
        """Rows of shape [windows, rows, width] for log-mels of shape [windows, mels, frames], a layer at a time."""
        hidden = mels[..., : window.frames].transpose(1, 2).to(self.positions.device, self.positions.dtype)
        for convolution in self.convolutions:
            hidden = gelu(convolution(hidden))
        positions = window.positions.to(hidden.device)
        hidden = hidden[:, positions.clamp(max=window.whole)] + self.positions[positions]
        bias = window.bias(hidden)
        for layer in self.layers:
            yield
            hidden = layer(hidden, bias)
        rows: torch.Tensor = self.norm(hidden)
        return rows


class Convolution(nn.Module):
    """A convolution over time, of neighbouring frames that lie behind one another in memory already."""

    def __init__(self, convolution: nn.Conv1d, linear: Linear = PackedLinear) -> None:
        super().__init__()
        (self.kernel,), (self.stride,), (self.padding,) = (
            convolution.kernel_size,
            convolution.stride,
            convolution.padding,
        )
        self.product = linear(convolution.weight.transpose(1, 2).flatten(1), convolution.bias)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """[windows, frames, channels] to [windows, frames / stride, channels]."""
        padded = pad(frames, (0, 0, self.padding, self.padding))
        stretches = padded.unfold(1, self.kernel, self.stride).transpose(2, 3)
        output: torch.Tensor = self.product(stretches.flatten(2))
        return output


class EncoderLayer(nn.Module):
    """Attention and two products, each behind a norm and beside what it adds to."""

    def __init__(self, layer: Any, linear: Linear) -> None:
        super().__init__()
        self.heads = layer.self_attn.num_heads
        self.norm, self.attention = layer.self_attn_layer_norm, fused_projection(layer.self_attn, "qkv", linear)
        self.output = linear(layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias)
        self.mlp = Mlp(layer, linear)

    def forward(self, hidden: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """[windows, rows, width], as it came; ``bias`` [rows] is how much more than one position each counts."""
        queries, keys, values = split_heads(self.attention(self.norm(hidden)), 3, self.heads)
        mask = None if bias is None else bias[None, None, None]
        hidden = hidden + self.output(join_heads(attend(queries, keys, values, mask)))
        return hidden + self.mlp(hidden)


class Mlp(nn.Module):
    """The two products of a layer of encoder or decoder."""

    def __init__(self, layer: Any, linear: Linear) -> None:
        super().__init__()
        self.norm = layer.final_layer_norm
        self.widen, self.narrow = (linear(product.weight, product.bias) for product in (layer.fc1, layer.fc2))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``hidden``, to be added to it."""
        added: torch.Tensor = self.narrow(gelu(self.widen(self.norm(hidden))))
        return added


def fused_projection(attention: Any, names: str, linear: Linear) -> nn.Module:
    """Those of queries, keys and values that are named by a letter, in one product; a Whisper's keys have no bias."""
    parts = [getattr(attention, f"{name}_proj") for name in names]
    biases = [part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias for part in parts]
    return linear(torch.cat([part.weight for part in parts]), torch.cat(biases))


def split_heads(hidden: torch.Tensor, parts: int, heads: int) -> tuple[torch.Tensor, ...]:
    """``parts`` views of shape [rows, heads, positions, width of a head] of a product [rows, positions, ...]."""
    return hidden.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def join_heads(attended: torch.Tensor) -> torch.Tensor:
    """[rows, heads, positions, width of a head] to [rows, positions, width]."""
    return attended.transpose(1, 2).flatten(2)
