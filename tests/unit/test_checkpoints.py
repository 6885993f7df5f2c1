"""Checkpoints that ``save_pretrained`` wrote: found by what a person types, loaded or refused with a reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from asr_core import ModelCard
from asr_core.checkpoints import Pretrained, load_module, read_json, resolve
from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint

TYPE = "qwen3"
CARDS = (ModelCard("small", ("tiny",), ("org/small-hf",)), ModelCard("large", checkpoints=("org/large-hf",)))


def name(config: Mapping[str, Any]) -> str:
    return "small" if config["hidden_size"] < 64 else "large"


def find(ref: str | Path) -> Checkpoint | None:
    return resolve(str(ref), CARDS, TYPE, name, "speech-lm")


@pytest.fixture(scope="module")
def module() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 16, "vocab_size": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads))


@pytest.fixture(scope="module")
def saved(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    module.save_pretrained(path)
    return path


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No network, and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def cache(directory: Path, repository: str, source: Path, *names: str) -> None:
    """Put files where huggingface_hub keeps what it has downloaded."""
    place = directory / f"models--{repository.replace('/', '--')}"
    snapshot = place / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0" * 40)
    for each in names:
        shutil.copy(source / each, snapshot / each)


def test_a_directory_is_told_by_its_configuration(saved: Path) -> None:
    checkpoint = find(saved)
    assert checkpoint is not None
    assert (checkpoint.model, checkpoint.reference, checkpoint.path) == ("small", str(saved), saved)
    assert checkpoint.config == Pretrained(read_json(saved / "config.json"), saved)
    assert checkpoint.config.read_text("generation_config.json").startswith("{")
    assert checkpoint.config.read_text("chat_template.jinja") is None
    assert checkpoint.config.read_json("config.json") == checkpoint.config.config
    assert checkpoint.config.read_json("processor_config.json") == {}


@pytest.mark.parametrize(
    ("generation", "config", "text", "stop"),
    [
        ({"eos_token_id": [3, 7]}, 1, 2, {3, 7}),
        ({"eos_token_id": 3}, 1, 2, {3}),
        ({}, [1, 5], 2, {1, 5}),
        ({}, None, 2, {2}),
        (None, None, None, {9}),
    ],
)
def test_what_ends_generation_is_where_generate_looks_for_it(
    tmp_path: Path, generation: Any, config: Any, text: Any, stop: set[int]
) -> None:
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    settings = {"eos_token_id": config, "text_config": {"eos_token_id": text}}
    assert Pretrained(settings, tmp_path).stop_tokens(default=9) == stop


@pytest.mark.parametrize("named", ["x", [], [True], [1, "2"], 1.5])
def test_an_end_that_is_no_token(tmp_path: Path, named: Any) -> None:
    with pytest.raises(CheckpointError, match="names no tokens that end the output: eos_token_id is"):
        Pretrained({"eos_token_id": named}, tmp_path).stop_tokens(default=9)


def test_a_card_has_no_files() -> None:
    assert Pretrained({}).read_text("config.json") is None
    assert Pretrained({}).read_json("config.json") == {}


@pytest.mark.parametrize("ref", ["", "nothing", "a" * 5000, "with\0nul", "../..", "org/other", "https://x.y/z"])
def test_what_is_nothing_of_the_kind(ref: str) -> None:
    assert find(ref) is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"model_type": "bert"}', '"' + "[" * 100_000])
def test_somebody_elses_directory(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert find(tmp_path) is None
    assert find(tmp_path / "config.json") is None


def test_weights_that_can_run_code_are_not_read(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").touch()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors; .* save it again with save_pretrained"):
        find(copy)


@pytest.mark.parametrize("ref", ["small", "tiny", "org/small-hf", "someone/My-Speech-LM-tuned"])
def test_what_is_only_on_the_hub_says_the_ways_around(ref: str) -> None:
    with pytest.raises(CheckpointError, match=r"could not be fetched: give a local directory .* HF_HUB_OFFLINE=1"):
        find(ref)


@pytest.mark.parametrize(("ref", "repository"), [("tiny", "org/small-hf"), ("org/large-hf", "org/large-hf")])
def test_the_cache_of_the_hub_is_enough(saved: Path, offline: Path, ref: str, repository: str, module: Any) -> None:
    cache(offline, repository, saved, "config.json", "model.safetensors")
    checkpoint = find(ref)
    assert checkpoint is not None
    assert (checkpoint.model, checkpoint.path) == ("small" if ref == "tiny" else "large", None)
    directory = checkpoint.config.fetch()
    assert torch.equal(load_module(type(module), directory, "float32", "cpu").lm_head.weight, module.lm_head.weight)
    assert checkpoint.config.read_text("chat_template.jinja") is None


def test_any_repository_of_the_type_in_the_cache(saved: Path, offline: Path) -> None:
    cache(offline, "someone/tuned", saved, "config.json")
    checkpoint = find("someone/tuned")
    assert checkpoint is not None
    assert checkpoint.model == "small"


@pytest.mark.parametrize("shard", ["1GB", "4KB"])
def test_one_file_or_shards(module: Any, tmp_path: Path, shard: str) -> None:
    module.save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "4KB")
    loaded = load_module(type(module), tmp_path, "float32", "cpu")
    assert all(map(torch.equal, loaded.parameters(), module.parameters()))
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert load_module(type(module), tmp_path, "bfloat16", "cpu").dtype == torch.bfloat16


def test_missing_superfluous_and_misshapen_weights_are_named(module: Any, copy: Path) -> None:
    path = copy / "model.safetensors"
    state = load_file(path)
    norm = state.pop("model.norm.weight")
    for changed, told in (
        (state, r"lacks model\.norm\.weight"),
        ({**state, "model.norm.weight": norm, "more": norm.clone()}, "superfluous weights: more"),
        ({**state, "model.norm.weight": norm[:3].clone()}, "cannot be loaded"),
    ):
        save_file(changed, path, {"format": "pt"})
        with pytest.raises(CheckpointError, match=told):
            load_module(type(module), copy, "float32", "cpu")


def test_damaged_weights(module: Any, copy: Path) -> None:
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_module(type(module), copy, "float32", "cpu")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"null", json.dumps([1]).encode()])
def test_files_that_are_no_json_objects(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.json"):
        read_json(tmp_path / "x.json")
