"""Weights are found whole, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from asr_core.api import Transcriber, load
from asr_core.errors import CheckpointError, ModelNotFoundError
from asr_core.kernels import has_int8
from asr_core.types import Samples
from asr_funasr.model import load_weights
from asr_funasr.plugin import resolve_checkpoint

from .conftest import Variant, pretrained, tokens

BOTH = frozenset({"encoder", "decoder"})
WEIGHTS = "model.safetensors"


def test_shards_are_the_same_model(transcriber: Transcriber, sharded: Path, reading: Samples) -> None:
    with load(str(sharded), device="cpu", dtype="float32") as other:
        assert tokens(other, reading[:100_000]) == tokens(transcriber, reading[:100_000])


def test_a_directory_is_recognised_by_its_configuration(checkpoint: Path, variant: Variant, tmp_path: Path) -> None:
    found = resolve_checkpoint(str(checkpoint))
    assert found is not None
    assert (found.model, found.path) == ("fun-asr-nano", checkpoint)
    assert resolve_checkpoint(str(variant(config_json='{"model_type": "whisper"}'))) is None
    assert resolve_checkpoint(str(tmp_path)) is None
    assert resolve_checkpoint("openai/whisper-base") is None


def test_the_encoder_comes_alone_when_asked_for_alone(checkpoint: Path, transcriber: Transcriber) -> None:
    whole = transcriber.served.model.weights.encoder
    alone = load_weights(pretrained(checkpoint), frozenset({"encoder"}), "cpu", "float32")
    assert alone.decoder is None
    names = {name for name, _ in alone.encoder.named_parameters()}
    assert names == {name for name, _ in whole.named_parameters() if not name.startswith("language_model.")}
    for name, parameter in alone.encoder.named_parameters():
        torch.testing.assert_close(parameter, whole.get_parameter(name), atol=0, rtol=0)
    torch.testing.assert_close(
        alone.encoder.audio_tower.position_embeddings.positional_embedding,
        whole.audio_tower.position_embeddings.positional_embedding,
    )


def test_the_decoder_comes_alone_when_asked_for_alone(checkpoint: Path) -> None:
    alone = load_weights(pretrained(checkpoint), frozenset({"decoder"}), "cpu", "float32")
    assert alone.encoder is None
    assert alone.decoder is not None


INT8 = pytest.param("int8", marks=pytest.mark.skipif(not has_int8(), reason="no products in int8 here"))


def test_float16_is_refused_with_the_reason(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="bfloat16") as raised:
        load(str(checkpoint), device="cpu", dtype="float16")
    assert raised.value.param == "dtype"


@pytest.mark.parametrize("dtype", ["bfloat16", INT8])
def test_other_dtypes_are_taken(checkpoint: Path, reading: Samples, dtype: str) -> None:
    with load(str(checkpoint), device="cpu", dtype=dtype) as half:
        assert half.transcribe(reading[:50_000]).usage.output_tokens > 0


@pytest.mark.parametrize("parts", [BOTH, frozenset({"encoder"})])
@pytest.mark.parametrize(
    "key", ["model.multi_modal_projector.linear_1.bias", "model.audio_tower.layers.1.mlp.fc1.weight"]
)
def test_a_missing_weight_is_named(variant: Variant, key: str, parts: frozenset[str]) -> None:
    directory = variant()
    state = load_file(directory / WEIGHTS)
    del state[key]
    save_file(state, directory / WEIGHTS, {"format": "pt"})
    with pytest.raises(CheckpointError, match=key.removeprefix("model.")):
        load_weights(pretrained(directory), parts, "cpu", "float32")


def test_a_foreign_weight_is_named(variant: Variant) -> None:
    directory = variant()
    state = load_file(directory / WEIGHTS) | {"model.adapter.weight": torch.zeros(2)}
    save_file(state, directory / WEIGHTS, {"format": "pt"})
    for parts in (BOTH, frozenset({"encoder"})):
        with pytest.raises(CheckpointError, match="adapter"):
            load_weights(pretrained(directory), parts, "cpu", "float32")


def test_a_weight_of_another_shape_is_refused(variant: Variant) -> None:
    directory = variant()
    state = load_file(directory / WEIGHTS)
    state["model.multi_modal_projector.linear_1.bias"] = torch.zeros(3)
    save_file(state, directory / WEIGHTS, {"format": "pt"})
    with pytest.raises(CheckpointError):
        load_weights(pretrained(directory), BOTH, "cpu", "float32")


@pytest.mark.parametrize("left", [0, 7, 1000, -1])
def test_damaged_weights_are_refused(variant: Variant, left: int) -> None:
    directory = variant()
    whole = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(whole[:left])
    with pytest.raises(CheckpointError):
        load(str(directory), device="cpu", dtype="float32")


def test_weights_that_can_run_code_are_not_opened(variant: Variant) -> None:
    directory = variant()
    torch.save(load_file(directory / WEIGHTS), directory / "pytorch_model.bin")
    (directory / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match="can run code"):
        load(str(directory), device="cpu", dtype="float32")


def test_a_missing_shard_is_refused(sharded: Path, tmp_path: Path) -> None:
    first, *others = sorted(sharded.glob("model-*.safetensors"))
    for path in (*sharded.glob("*.json"), *sharded.glob("*.jinja"), *others):
        (tmp_path / path.name).symlink_to(path)
    with pytest.raises(CheckpointError, match=first.name):
        load(str(tmp_path), device="cpu", dtype="float32")


def test_a_broken_configuration_is_nobodys(variant: Variant) -> None:
    with pytest.raises(ModelNotFoundError):
        load(str(variant(config_json="{")), device="cpu")


def test_a_configuration_that_contradicts_itself_is_refused(checkpoint: Path, variant: Variant) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config["adaptor_config"]["hidden_size"] = 7
    with pytest.raises(CheckpointError):
        load(str(variant(config_json=json.dumps(config))), device="cpu", dtype="float32")
