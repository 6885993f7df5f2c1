"""OpenAI's own ``.pt`` files: a pickle in a zip archive, opened only as weights, renamed for transformers."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from asr_core.errors import CheckpointError
from asr_whisper.config import Dimensions
from asr_whisper.source import Source

if TYPE_CHECKING:
    import torch

_MARKS = (b"model_state_dict", b"n_audio_state")
_MAX_PICKLE = 16 << 20  # large-v3's is 170 kB

_DIMENSIONS = {
    "n_mels": "mels",
    "n_audio_layer": "audio_layers",
    "n_audio_state": "audio_width",
    "n_audio_head": "audio_heads",
    "n_audio_ctx": "audio_context",
    "n_text_layer": "text_layers",
    "n_text_state": "text_width",
    "n_text_head": "text_heads",
    "n_text_ctx": "text_context",
    "n_vocab": "vocabulary",
}

# Ordered: `cross_attn` must not be taken for `attn`, nor a block's `attn_ln` for its `attn`.
_NAMES = (
    (r"\.blocks\.", ".layers."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.attn\.", ".self_attn."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.query\.", ".q_proj."),
    (r"\.key\.", ".k_proj."),
    (r"\.value\.", ".v_proj."),
    (r"_attn\.out\.", "_attn.out_proj."),
    (r"\.token_embedding\.", ".embed_tokens."),
    (r"\.positional_embedding$", ".embed_positions.weight"),
    (r"\.(ln|ln_post)\.", ".layer_norm."),
)


def is_whisper(source: Source) -> bool:
    """Whether the pickle mentions what OpenAI's files consist of; looked for as text, nothing is unpickled."""
    with source.open() as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                return all(mark in _pickle(archive) for mark in _MARKS)
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError):
            stream.seek(0)
            head = stream.read(_MAX_PICKLE)
            return all(mark in head for mark in _MARKS)


def _pickle(archive: zipfile.ZipFile) -> bytes:
    names = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
    if len(names) != 1 or names[0].file_size > _MAX_PICKLE:
        return b""
    return archive.read(names[0])


def read_dimensions(source: Source) -> Dimensions:
    """Dimensions, without reading the weights: they are mapped, not loaded.

    Raises:
        CheckpointError: as :func:`read_state`.
    """
    values = _open(source)["dims"]
    if not isinstance(values, dict) or values.keys() != _DIMENSIONS.keys():
        raise CheckpointError(f"{source.name}: dims are not those of a Whisper")
    known = {name: values[key] for key, name in _DIMENSIONS.items()}
    if not all(isinstance(value, int) for value in known.values()):
        raise CheckpointError(f"{source.name}: dims are not integers")
    return Dimensions(**known, audio_hidden=4 * known["audio_width"], text_hidden=4 * known["text_width"])


def read_state(
    source: Source, dtype: torch.dtype, device: str, parts: Collection[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors by their name in transformers; ``parts`` are of {"encoder", "decoder"}.

    Raises:
        CheckpointError: not OpenAI's format, damaged, or more than weights, which would be code.
    """
    import torch

    state = _open(source)["model_state_dict"]
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{source.name}: model_state_dict is not a dictionary")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise CheckpointError(f"{source.name}: {name!r} is not a weight")
        # A tensor of stride 0 is small in the file and as large as it likes in memory.
        if not tensor.is_contiguous():
            raise CheckpointError(f"{source.name}: {name} is not stored in full")
        if name.partition(".")[0] in {"encoder", "decoder"} - set(parts) or name.endswith(".mask"):
            continue
        yield _rename(name), tensor.to(device=device, dtype=dtype, copy=True)


def _rename(name: str) -> str:
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return f"model.{name}"


def _open(source: Source) -> Mapping[str, Any]:
    import torch

    _require_plain(source)
    try:
        data = torch.load(source.parts[0], map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        # pickle, zip reader and tensor rebuilding have a dozen kinds of error, all meaning damaged or hostile
        raise CheckpointError(f"{source.name} cannot be read as weights and nothing else: {error}") from error
    if not isinstance(data, dict) or not data.keys() >= {"dims", "model_state_dict"}:
        raise CheckpointError(f"{source.name} has no dims and model_state_dict, so it is not OpenAI's format")
    return data


def _require_plain(source: Source) -> None:
    """Archives as torch writes them are stored, not compressed, so what they unpack to is bounded by their size."""
    try:
        with source.open() as stream, zipfile.ZipFile(stream) as archive:
            plain = all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise CheckpointError(f"{source.name} is not a zip archive as torch.save writes it: {error}") from error
    if not plain:
        raise CheckpointError(f"{source.name} is a compressed archive; torch.save writes none")
