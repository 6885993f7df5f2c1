"""Weights from one file or from several, and what is said of those that are no good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MossTranscribeDiarizeForConditionalGeneration

from asr_core.api import load
from asr_core.errors import CheckpointError, ModelNotFoundError
from asr_core.kernels import has_int8
from asr_core.types import Samples
from asr_moss.model import load_weights
from asr_moss.names import CARD, find

from .conftest import RATE

BOTH = frozenset({"encoder", "decoder"})


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    for file in directory.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


def weights(path: Path, parts: frozenset[str] = BOTH) -> Any:
    found = find(str(path))
    assert found is not None
    return load_weights(found.config, parts, "cpu", "float32")


def test_sharded_weights_say_the_same(directory: Path, copy: Path, reference: Any, reading: Samples) -> None:
    (copy / "model.safetensors").unlink()
    reference.save_pretrained(copy, max_shard_size="60KB")
    assert len(list(copy.glob("model-*.safetensors"))) > 2
    said = []
    for path in (directory, copy):
        with load(str(path), device="cpu", dtype="float32") as transcriber:
            said.append([one.tokens for one in transcriber.transcribe(reading[: 2 * RATE]).segments])
    assert said[0] == said[1] != []


def test_parts_nobody_asked_for_are_left_out(directory: Path) -> None:
    encoder = weights(directory, frozenset({"encoder"}))
    assert encoder.decoder is None
    assert encoder.encoder.language_model is None
    assert not any("embed_tokens" in name for name, _ in encoder.encoder.named_parameters())
    decoder = weights(directory, frozenset({"decoder"}))
    assert decoder.encoder is None
    assert decoder.decoder is not None


def test_the_dtype_is_the_callers(directory: Path) -> None:
    found = find(str(directory))
    assert found is not None
    loaded = load_weights(found.config, BOTH, "cpu", "bfloat16")
    assert {weight.dtype for weight in loaded.encoder.parameters()} == {torch.bfloat16}


INT8 = pytest.param("int8", marks=pytest.mark.skipif(not has_int8(), reason="no products in int8 here"))


@pytest.mark.parametrize("dtype", ["bfloat16", INT8])
def test_other_dtypes_work(directory: Path, reading: Samples, dtype: str) -> None:
    with load(str(directory), device="cpu", dtype=dtype) as transcriber:
        assert transcriber.transcribe(reading[:RATE]).usage.output_tokens > 0


def test_a_shard_that_is_missing(copy: Path, reference: Any) -> None:
    (copy / "model.safetensors").unlink()
    reference.save_pretrained(copy, max_shard_size="60KB")
    next(copy.glob("model-*.safetensors")).unlink()
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        weights(copy)


def rewritten(path: Path, change: Any) -> None:
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "name",
    [
        "model.audio_tower.conv1.weight",
        "model.multi_modal_projector.linear_1.weight",
        "model.language_model.embed_tokens.weight",
    ],
)
def test_a_weight_that_is_missing(copy: Path, name: str) -> None:
    rewritten(copy, lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match="lacks"):
        weights(copy)


def test_a_weight_of_another_shape(copy: Path) -> None:
    rewritten(copy, lambda tensors: tensors.update({"model.audio_tower.conv1.weight": torch.zeros(1, 80, 3)}))
    with pytest.raises(CheckpointError):
        weights(copy)


@pytest.mark.parametrize("size", [0, 7, 1000, 100_000])
def test_damaged_weights(copy: Path, directory: Path, size: int) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes()[:size])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        weights(copy)


def test_pickled_weights_are_not_opened(copy: Path, reference: Any) -> None:
    (copy / "model.safetensors").unlink()
    torch.save(reference.state_dict(), copy / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="save_pretrained"):
        load(str(copy))


def test_the_layout_of_the_models_own_code(copy: Path) -> None:
    text = (copy / "config.json").read_text()
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(
        text.replace('"audio_merge_size"', '"adaptor_input_dim": 128,\n"audio_merge_size"')
    )
    with pytest.raises(CheckpointError, match="hf-audio/MOSS-Transcribe-Diarize-HF"):
        find(str(copy))


def test_a_directory_is_found_by_its_configuration(directory: Path, tmp_path: Path) -> None:
    found = find(str(directory))
    assert found is not None
    assert (found.model, found.path) == (CARD.name, directory)
    (tmp_path / "config.json").write_text('{"model_type": "a cat"}')
    assert find(str(tmp_path)) is None
    with pytest.raises(ModelNotFoundError):
        load(str(tmp_path))


def test_the_native_class_reads_it_too(directory: Path) -> None:
    """What the tests save is a checkpoint to transformers."""
    module, report = MossTranscribeDiarizeForConditionalGeneration.from_pretrained(directory, output_loading_info=True)
    assert not report["missing_keys"]
    assert module.config.audio_chunk_size == 30 * RATE
