"""OpenAI's files: against OpenAI's own forward pass, and files that would be code."""

from __future__ import annotations

import os
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from whisper.model import ModelDimensions, Whisper

from asr_core.errors import CheckpointError
from asr_whisper import openai_pt
from asr_whisper.checkpoints import resolve
from asr_whisper.config import Dimensions
from asr_whisper.source import Source
from asr_whisper.weights import open_module

DIMS = ModelDimensions(
    n_mels=6, n_audio_ctx=10, n_audio_state=16, n_audio_head=2, n_audio_layer=2,
    n_vocab=50, n_text_ctx=12, n_text_state=16, n_text_head=4, n_text_layer=3,
)  # fmt: skip


@cache
def reference() -> Whisper:
    torch.manual_seed(2)
    model = Whisper(DIMS).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def content() -> dict[str, Any]:
    return {"dims": dict(vars(DIMS)), "model_state_dict": dict(reference().state_dict())}


def save(directory: Path, value: object) -> Path:
    torch.save(value, directory / "model.pt")
    return directory / "model.pt"


def test_openais_own_forward_gives_the_same(tmp_path: Path) -> None:
    checkpoint = resolve(str(save(tmp_path, content())))
    assert checkpoint is not None
    assert checkpoint.config.kind == "openai"
    assert checkpoint.config.dims == Dimensions(6, 2, 16, 2, 10, 3, 16, 4, 12, 50, 64, 64)
    module = open_module(checkpoint, "float32", "cpu")
    mel, tokens = torch.randn(2, 6, 20), torch.randint(50, (2, 7))
    with torch.no_grad():
        encoded = module.model.encoder(mel).last_hidden_state
        logits = module(encoder_outputs=(encoded,), decoder_input_ids=tokens).logits
        expected = reference().encoder(mel)
        assert torch.allclose(encoded, expected, atol=1e-5)
        assert torch.allclose(logits, reference().decoder(tokens, expected), atol=1e-4)


def test_half_precision_files_load_as_asked(tmp_path: Path) -> None:
    value = content()
    value["model_state_dict"] = {name: tensor.half() for name, tensor in value["model_state_dict"].items()}
    checkpoint = resolve(str(save(tmp_path, value)))
    assert checkpoint is not None
    module = open_module(checkpoint, "float32", "cpu")
    expected = reference().encoder.conv1.weight.half().float()
    assert torch.equal(module.model.encoder.conv1.weight, expected)


@pytest.mark.parametrize(("part", "other"), [("encoder", "decoder"), ("decoder", "encoder")])
def test_one_part_alone(tmp_path: Path, part: str, other: str) -> None:
    checkpoint = resolve(str(save(tmp_path, content())))
    assert checkpoint is not None
    module = open_module(checkpoint, "float32", "cpu", frozenset({part}))
    assert getattr(module.model, other) is None
    assert getattr(module.model, part) is not None


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, legacy: bool) -> None:
    value = {**content(), "more": Bomb(tmp_path / "exploded")}
    torch.save(value, tmp_path / "model.pt", _use_new_zipfile_serialization=not legacy)
    assert openai_pt.is_whisper(Source((tmp_path / "model.pt",)))
    with pytest.raises(CheckpointError, match=r"cannot be read as weights|not a zip archive"):
        resolve(str(tmp_path / "model.pt"))
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": {**vars(DIMS), "n_mels": 10**12}}, "mels is 1000000000000"),
        ({"dims": {**vars(DIMS), "n_mels": "6"}}, "dims are not integers"),
        ({"dims": {**vars(DIMS), "n_extra": 6}}, "dims are not those of a Whisper"),
        ({"dims": {**vars(DIMS), "n_audio_state": 32}}, "encoder of width 32, decoder of width 16"),
        ({"dims": {**vars(DIMS), "n_vocab": 51}}, r"embed_tokens\.weight is \(50, 16\), expected \(51, 16\)"),
        ({"dims": {**vars(DIMS), "n_text_layer": 4}}, r"lacks model\.decoder\.layers\.3"),
        ({"dims": {**vars(DIMS), "n_text_layer": 2}}, r"has superfluous weights: model\.decoder\.layers\.2"),
        ({"model_state_dict": {"encoder.n_audio_state": 3}}, "is not a weight"),
        ({"model_state_dict": [1]}, "is not a dictionary"),
    ],
)
def test_wrong_content_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = save(tmp_path, {**content(), **change})
    with pytest.raises(CheckpointError, match=message):
        open_module(resolve(str(path)), "float32", "cpu")  # type: ignore[arg-type]


def test_a_tensor_that_is_large_only_in_memory_is_refused(tmp_path: Path) -> None:
    value = content()
    value["model_state_dict"]["encoder.conv1.bias"] = torch.zeros(1).expand(1 << 40)
    checkpoint = resolve(str(save(tmp_path, value)))
    assert checkpoint is not None
    with pytest.raises(CheckpointError, match="not stored in full"):
        open_module(checkpoint, "float32", "cpu")


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, content())
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "zipped.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(CheckpointError, match="compressed archive"):
        resolve(str(tmp_path / "zipped.pt"))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused_or_nobodys(tmp_path: Path, share: float) -> None:
    path = save(tmp_path, content())
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    try:
        assert resolve(str(path)) is None
    except CheckpointError as error:
        assert "model.pt" in error.message  # noqa: PT017 - either outcome is right


def test_other_files_are_nobodys(tmp_path: Path) -> None:
    assert resolve(str(save(tmp_path, {"weight": torch.zeros(3)}))) is None
    (tmp_path / "model.pt").write_bytes(b"not a pickle at all")
    assert resolve(str(tmp_path / "model.pt")) is None
    (tmp_path / "notes.txt").write_text("model_state_dict n_audio_state")
    assert resolve(str(tmp_path / "notes.txt")) is None
