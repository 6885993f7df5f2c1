"""From what a person types to a checkpoint: a name, a directory, a file or a hub id."""

from __future__ import annotations

import re
from pathlib import Path

from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint
from asr_whisper import ctranslate2, hub, openai_pt
from asr_whisper.config import Dimensions, Hints, WhisperConfig, read_hints, transformers_dimensions
from asr_whisper.names import DIMENSIONS, find_card, find_checkpoint, guess_card
from asr_whisper.packages import find_package
from asr_whisper.source import Source

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*whisper[\w.-]*", re.ASCII | re.IGNORECASE)

# What CTranslate2 writes into the config.json of a Whisper and of nothing else
_CTRANSLATE2_KEYS = {"suppress_ids_begin", "lang_ids"}


def resolve(ref: str) -> Checkpoint | None:
    """The checkpoint ``ref`` means, or None when it is nothing of Whisper's.

    A name on one of the cards wins over a directory of the same name, a directory over a hub id. Hub ids are those on
    the cards, any with "whisper" in its name, and any Whisper in the local cache.

    Raises:
        CheckpointError: it is Whisper's, but damaged, incomplete or out of reach.
    """
    if card := find_card(ref):
        return _packaged(ref, card.name) or _remote(ref, card.checkpoints[0])
    path = Path(ref)
    try:
        if path.is_dir():
            config = _directory(path)
            return _found(ref, path, config) if config else None
        if path.is_file():
            return _file(ref, path)
    except (OSError, ValueError):  # not a path at all: too long, or with a NUL
        return None
    if find_checkpoint(ref) or _HUB_ID.fullmatch(ref) or hub.cached(ref, "config.json"):
        return _remote(ref, ref)
    return None


def _found(ref: str, path: Path, config: WhisperConfig, model: str | None = None) -> Checkpoint:
    return Checkpoint(model or guess_card(config.dims).name, ref, path, config)


def _packaged(ref: str, model: str) -> Checkpoint | None:
    package = find_package(model)
    sources = package.locate() if package else None
    if sources is None:
        return None
    weights, config, tokenizer = sources
    found = _ctranslate2(weights, tokenizer, read_hints(config.read_json()), config.parts[0].parent)
    return _found(ref, config.parts[0].parent, found, model)


def _file(ref: str, path: Path) -> Checkpoint | None:
    source = Source((path,))
    if path.suffix == ".pt" and openai_pt.is_whisper(source):
        config = WhisperConfig(
            kind="openai",
            dims=openai_pt.read_dimensions(source),
            directory=path.parent,
            weights=source,
            tokenizer=_beside(path, "tokenizer.json"),
        )
        return _found(ref, path, config)
    if path.name == "model.bin" and ctranslate2.is_whisper(source):
        found = _directory(path.parent)
        return _found(ref, path.parent, found) if found else None
    return None


def _directory(path: Path) -> WhisperConfig | None:
    """Configuration of a local directory in either layout, None for anything else."""
    weights = _beside(path / "*", "model.bin")
    if weights and ctranslate2.is_whisper(weights):
        config = _beside(path / "*", "config.json")
        hints = read_hints(config.read_json()) if config else Hints()
        return _ctranslate2(weights, _beside(path / "*", "tokenizer.json"), hints, path)
    config = _beside(path / "*", "config.json")
    try:
        values = config.read_json() if config else {}
    except CheckpointError:
        return None  # whose broken configuration this is cannot be told
    if values.get("model_type") == "whisper":
        _require_safetensors(path)
        return _transformers(path, None)
    if values.keys() >= _CTRANSLATE2_KEYS:
        what = f"begins like no {ctranslate2.SPEC}" if weights else "is missing"
        raise CheckpointError(f"{path} is a CTranslate2 Whisper by its config.json, but its model.bin {what}")
    return None


def _require_safetensors(path: Path) -> None:
    if any((path / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        return
    raise CheckpointError(
        f"{path} is a Whisper by its config.json, but has no model.safetensors; other formats of transformers can run "
        "code when they are opened and are not read: save it again with save_pretrained()"
    )


def _beside(path: Path, name: str) -> Source | None:
    other = path.with_name(name)
    return Source((other,)) if other.is_file() else None


def _ctranslate2(weights: Source, tokenizer: Source | None, hints: Hints, directory: Path) -> WhisperConfig:
    dims = ctranslate2.Index.read(weights).dimensions()
    return WhisperConfig("ctranslate2", dims, directory, weights=weights, tokenizer=tokenizer, hints=hints)


def _transformers(directory: Path, repository: str | None) -> WhisperConfig:
    """From the small files of a directory that is complete, or of a hub id's cache, where weights may still lack."""
    values = Source((directory / "config.json",)).read_json()
    generation = _beside(directory / "*", "generation_config.json")
    return WhisperConfig(
        kind="transformers",
        dims=transformers_dimensions(values),
        directory=None if repository else directory,
        repository=repository,
        tokenizer=_beside(directory / "*", "tokenizer.json"),
        # Before generation_config.json existed its values were in config.json.
        hints=read_hints({**values, **(generation.read_json() if generation else {})}),
    )


def _remote(ref: str, repository: str) -> Checkpoint | None:
    online = hub.reachable()
    path = hub.fetch(repository, "config.json", online=online)
    if path is None:
        return None
    values = Source((path,)).read_json()
    card = find_checkpoint(repository)
    if values.get("model_type") == "whisper":
        for name in ("generation_config.json", "tokenizer.json"):
            hub.optional(repository, name, online=online)
        config = _transformers(path.parent, repository)
    elif card or values.keys() >= _CTRANSLATE2_KEYS:
        config = _remote_ctranslate2(repository, path, DIMENSIONS[card.name] if card else None)
    else:
        return None
    return Checkpoint(card.name if card else guess_card(config.dims).name, ref, None, config)


def _remote_ctranslate2(repository: str, path: Path, dims: Dimensions | None) -> WhisperConfig:
    """These repositories say their dimensions only in model.bin, so they must be known or the file be here."""
    if weights := hub.cached(repository, "model.bin"):
        dims = ctranslate2.Index.read(Source((weights,))).dimensions()
    if dims is None:
        raise CheckpointError(
            f"{repository} is a CTranslate2 Whisper of unknown size: download it first "
            f"(hf download {repository}), or give a local directory"
        )
    hints = read_hints(Source((path,)).read_json())
    return WhisperConfig("ctranslate2", dims, repository=repository, hints=hints)
