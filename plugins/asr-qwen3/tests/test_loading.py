"""Files: one or several of weights, missing, damaged, or of a kind that is not opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3ASRForConditionalGeneration

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.errors import CheckpointError
from asr_core.kernels import has_int8
from asr_core.types import Samples
from asr_qwen3 import cards, plugin
from asr_qwen3.frontend import Frontend, extract_features, prepare_frontend

Copy = Callable[..., Path]


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Copy:
    """A copy of the checkpoint without the files of these names."""

    def copied(*without: str) -> Path:
        return Path(shutil.copytree(checkpoint, tmp_path / "copy", ignore=shutil.ignore_patterns(*without)))

    return copied


def fails(directory: Path) -> str:
    with pytest.raises(CheckpointError) as raised, load(str(directory), device="cpu", dtype="float32"):
        pass
    return raised.value.message


def tokens(transcriber: Transcriber, samples: Samples) -> list[int]:
    segments = transcriber.transcribe(samples, temperature=0.0).segments
    return [token for segment in segments for token in segment.tokens]


def test_shards_give_the_same_tokens(
    model: Transcriber, module: Qwen3ASRForConditionalGeneration, copy: Copy, speech: Samples
) -> None:
    directory = copy("model.safetensors")
    module.save_pretrained(directory, max_shard_size="50KB")
    assert len(list(directory.glob("model-*.safetensors"))) > 2
    with load(str(directory), device="cpu", dtype="float32") as sharded:
        assert tokens(sharded, speech) == tokens(model, speech)


def test_a_missing_shard_is_named(module: Qwen3ASRForConditionalGeneration, copy: Copy) -> None:
    directory = copy("model.safetensors")
    module.save_pretrained(directory, max_shard_size="50KB")
    next(directory.glob("model-00002-*")).unlink()
    assert "model-00002-of-" in fails(directory)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "processor_config.json"])
def test_a_missing_file_is_an_error(copy: Copy, name: str) -> None:
    assert "copy" in fails(copy(name))


def test_a_missing_template_is_named(copy: Copy) -> None:
    assert "chat_template.jinja" in fails(copy("chat_template.jinja"))


def test_a_template_for_other_models_is_refused(copy: Copy) -> None:
    directory = copy()
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content[0].text }}{% endfor %}")
    assert "template" in fails(directory)


def test_damaged_weights_are_an_error(copy: Copy) -> None:
    weights = copy() / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "cannot be loaded" in fails(weights.parent)


def test_a_lacking_weight_is_named(module: Qwen3ASRForConditionalGeneration, copy: Copy) -> None:
    directory = copy()
    state = {name: weight for name, weight in module.state_dict().items() if "linear_2.bias" not in name}
    module.save_pretrained(directory, state_dict=state)
    assert "multi_modal_projector.linear_2.bias" in fails(directory)


def test_pickles_are_not_opened(module: Qwen3ASRForConditionalGeneration, copy: Copy) -> None:
    directory = copy("model.safetensors")
    torch.save(module.state_dict(), directory / "pytorch_model.bin")
    assert "can run code" in fails(directory)


def test_an_extractor_of_another_rate_is_refused(copy: Copy) -> None:
    path = copy() / "processor_config.json"
    config = json.loads(path.read_text())
    config["feature_extractor"]["sampling_rate"] = 22_050
    path.write_text(json.dumps(config))
    assert "22050 Hz" in fails(path.parent)


def test_an_extractor_by_whispers_name_is_this_models(frontend: Frontend, copy: Copy, speech: Samples) -> None:
    """Of one kind of settings there are two extractors, and the encoder goes with one of them."""
    path = copy() / "processor_config.json"
    path.write_text(path.read_text().replace("Qwen3ASRFeatureExtractor", "WhisperFeatureExtractor"))
    other, clip = prepare_frontend(found(path.parent)), audio.from_array(speech[:5000], 16_000, 16_000).clip()
    assert type(other.extractor) is type(frontend.extractor)
    ours, theirs = (extract_features(one, clip, one.windows.spans(5000))[0] for one in (other, frontend))
    np.testing.assert_array_equal(ours.data, theirs.data)


def test_the_encoder_alone_brings_no_decoder(model: Transcriber) -> None:
    served = model.served.model
    both = plugin.load_weights(served, frozenset({"encoder", "decoder"}), "cpu", "float32")
    alone = plugin.load_weights(served, frozenset({"encoder"}), "cpu", "float32")
    assert alone.decoder is None
    assert both.decoder is not None
    names = {name for weights in (alone, both) for name, _ in weights.encoder.named_modules()}
    assert not any("language_model" in name for name in names)
    assert any("audio_tower" in name for name in names)
    assert any("multi_modal_projector" in name for name in names)


INT8 = pytest.param("int8", marks=pytest.mark.skipif(not has_int8(), reason="no products in int8 here"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", INT8])
def test_other_dtypes_run(checkpoint: Path, speech: Samples, dtype: str) -> None:
    with load(str(checkpoint), device="cpu", dtype=dtype) as transcriber:
        assert transcriber.transcribe(speech, language="en").language == "en"


def test_generation_config_says_what_stops(frontend: Frontend, copy: Copy) -> None:
    directory = copy()
    end = frontend.template.tokenizer.special["<|im_end|>"]
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    assert prepare_frontend(found(directory)).stop == {end}
    (directory / "generation_config.json").unlink()
    assert prepare_frontend(found(directory)).stop == frontend.stop
    assert len(frontend.stop) == 2


def found(directory: Path) -> cards.Checkpoint:
    checkpoint = cards.resolve_checkpoint(str(directory))
    assert checkpoint is not None
    return checkpoint
