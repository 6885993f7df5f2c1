"""Which array of a CTranslate2 Whisper becomes which parameter of the module in transformers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

from attrs import frozen

from asr_core.errors import CheckpointError
from asr_whisper.config import Dimensions
from asr_whisper.ctranslate2 import Index, Variable

if TYPE_CHECKING:
    import torch


@frozen
class Block:
    """One array of the file and the parameters its rows are divided among, in order.

    A target of None is left out: CTranslate2 stores a bias for keys, which Whisper has not, and which would not change
    attention if it had (it adds the same to every score of a query).
    """

    variable: str
    targets: tuple[str | None, ...]
    shape: tuple[int, ...]

    @property
    def part(self) -> str:
        """``encoder`` or ``decoder``."""
        return self.variable.partition("/")[0]


def layout(dims: Dimensions) -> Iterator[Block]:
    """Every weight of a Whisper; the output projection is left out, being the embedding."""
    width = dims.audio_width
    for name, channels in (("conv1", dims.mels), ("conv2", width)):
        yield Block(f"encoder/{name}/weight", (f"model.encoder.{name}.weight",), (width, channels, 3))
        yield Block(f"encoder/{name}/bias", (f"model.encoder.{name}.bias",), (width,))
    yield _positions("encoder", dims.audio_context, width)
    for layer in range(dims.audio_layers):
        yield from _layer("encoder", layer, width, dims.audio_hidden)
    yield from _norm("encoder/layer_norm", "model.encoder.layer_norm", width)

    shape = (dims.vocabulary, dims.text_width)
    yield Block("decoder/embeddings/weight", ("model.decoder.embed_tokens.weight",), shape)
    yield _positions("decoder", dims.text_context, dims.text_width)
    for layer in range(dims.text_layers):
        yield from _layer("decoder", layer, dims.text_width, dims.text_hidden)
        yield from _cross_attention(layer, dims.text_width)
    yield from _norm("decoder/layer_norm", "model.decoder.layer_norm", dims.text_width)


def _positions(side: str, count: int, width: int) -> Block:
    return Block(f"{side}/position_encodings/encodings", (f"model.{side}.embed_positions.weight",), (count, width))


def _layer(side: str, layer: int, width: int, hidden: int) -> Iterator[Block]:
    source, target = f"{side}/layer_{layer}", f"model.{side}.layers.{layer}"
    attention = f"{target}.self_attn"
    yield from _norm(f"{source}/self_attention/layer_norm", f"{attention}_layer_norm", width)
    projections = (f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj")
    yield from _linear(f"{source}/self_attention/linear_0", projections, width, width)
    yield from _linear(f"{source}/self_attention/linear_1", (f"{attention}.out_proj",), width, width)
    yield from _norm(f"{source}/ffn/layer_norm", f"{target}.final_layer_norm", width)
    yield from _linear(f"{source}/ffn/linear_0", (f"{target}.fc1",), hidden, width)
    yield from _linear(f"{source}/ffn/linear_1", (f"{target}.fc2",), width, hidden)


def _cross_attention(layer: int, width: int) -> Iterator[Block]:
    source, target = f"decoder/layer_{layer}/attention", f"model.decoder.layers.{layer}.encoder_attn"
    yield from _norm(f"{source}/layer_norm", f"{target}_layer_norm", width)
    yield from _linear(f"{source}/linear_0", (f"{target}.q_proj",), width, width)
    yield from _linear(f"{source}/linear_1", (f"{target}.k_proj", f"{target}.v_proj"), width, width)
    yield from _linear(f"{source}/linear_2", (f"{target}.out_proj",), width, width)


def _linear(source: str, targets: tuple[str, ...], rows: int, columns: int) -> Iterator[Block]:
    rows *= len(targets)
    yield Block(f"{source}/weight", tuple(f"{target}.weight" for target in targets), (rows, columns))
    biases = tuple(None if target.endswith(".k_proj") else f"{target}.bias" for target in targets)
    yield Block(f"{source}/bias", biases, (rows,))


def _norm(source: str, target: str, width: int) -> Iterator[Block]:
    yield Block(f"{source}/gamma", (f"{target}.weight",), (width,))
    yield Block(f"{source}/beta", (f"{target}.bias",), (width,))


def read_state(
    index: Index, dims: Dimensions, dtype: torch.dtype, device: str, parts: Collection[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors by their name in transformers, one after the other; ``parts`` are of {"encoder", "decoder"}.

    At no time is more than one tensor held beside those the caller keeps; quantised ones are multiplied out.

    Raises:
        CheckpointError: weights are missing, superfluous, or of another shape than ``dims`` asks for.
    """
    blocks = list(layout(dims))
    _complete(index, {block.variable: block.shape for block in blocks})
    with index.source.open() as stream:
        for block in blocks:
            if block.part in parts:
                tensor = _tensor(index, stream, block.variable, dtype).to(device)
                pieces = tensor.chunk(len(block.targets))
                yield from ((name, piece) for name, piece in zip(block.targets, pieces, strict=True) if name)


def _complete(index: Index, shapes: Mapping[str, tuple[int, ...]]) -> None:
    name = index.source.name
    missing = [variable for variable in shapes if variable not in index.variables]
    if missing:
        raise CheckpointError(f"{name} lacks {', '.join(missing[:5])}" + _more(missing))
    for variable, shape in shapes.items():
        if index.variables[variable].shape != shape:
            raise CheckpointError(f"{name}: {variable} is {index.variables[variable].shape}, expected {shape}")
    scales = {f"{variable}_scale" for variable in shapes}
    # The output projection shares the embedding; scalars are attributes, not weights.
    known = {*shapes, *scales, "decoder/projection/weight", "decoder/projection/weight_scale"}
    extra = [key for key, variable in index.variables.items() if variable.shape and key not in known]
    if extra:
        raise CheckpointError(f"{name} has weights no Whisper has: {', '.join(extra[:5])}" + _more(extra))


def _more(names: list[str]) -> str:
    return f" and {len(names) - 5} more" if len(names) > 5 else ""


def _tensor(index: Index, stream: BinaryIO, name: str, dtype: torch.dtype) -> torch.Tensor:
    variable = index.variables[name]
    tensor = _array(index, stream, variable)
    if not variable.dtype.startswith("int"):
        return tensor.to(dtype)
    scale = index.variables.get(f"{name}_scale")
    if scale is None or scale.shape not in ((), (1,), variable.shape[:1]) or scale.dtype.startswith("int"):
        raise CheckpointError(f"{index.source.name}: {name} is {variable.dtype} without a scale that fits")
    scales = _array(index, stream, scale).float().reshape(-1, *[1] * (len(variable.shape) - 1))
    # What is stored is weight times scale, rounded.
    return tensor.float().div_(scales).to(dtype)


def _array(index: Index, stream: BinaryIO, variable: Variable) -> torch.Tensor:
    import torch

    buffer = bytearray(variable.size)
    stream.seek(variable.offset)
    if stream.readinto(buffer) != variable.size:  # type: ignore[attr-defined]
        raise CheckpointError(f"{index.source.name} became shorter while it was read")
    return torch.frombuffer(buffer, dtype=getattr(torch, variable.dtype)).reshape(variable.shape)
