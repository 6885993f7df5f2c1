"""A checkpoint in the layout of ``save_pretrained``, from what a person types to a module with its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from asr_core.checkpoints import hub
from asr_core.checkpoints._read import read_json, read_text
from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint, ModelCard

SMALL_FILES = ("*.json", "*.txt", "*.jinja")
"""Patterns of all that a frontend is made of."""

WEIGHT_FILES = (
    *SMALL_FILES,
    "model.safetensors",
    # some repositories hold further shards at another precision, under longer names
    "model-?????-of-?????.safetensors",
)


@frozen
class Pretrained:
    """What is known of such a checkpoint before a weight is read: ``config`` is its config.json.

    ``directory`` holds the files and is None while they are still in ``repository`` on the hub. Without either there
    are no files: a card's configuration as it is published.
    """

    config: Mapping[str, Any] = field(repr=False)
    directory: Path | None = None
    repository: str | None = None

    def fetch(self, patterns: Iterable[str] = SMALL_FILES) -> Path:
        """The directory with every file that matches ``patterns``, downloaded if need be.

        Raises:
            CheckpointError: the repository is out of reach.
        """
        return self.directory or hub.fetch_all(str(self.repository), patterns)

    def read_text(self, name: str) -> str | None:
        """A small file beside config.json, None where there is none.

        Raises:
            CheckpointError: unreadable, or over 64 MiB.
        """
        path = self._find(name)
        return read_text(path) if path else None

    def read_json(self, name: str) -> Mapping[str, Any]:
        """The object in a small file beside config.json, empty where there is no such file.

        Raises:
            CheckpointError: as :meth:`read_text`, or it is no JSON object.
        """
        path = self._find(name)
        return read_json(path) if path else {}

    def stop_tokens(self, default: int | Sequence[int] | None) -> frozenset[int]:
        """What ends generation, looked for where transformers' ``generate`` does.

        That is generation_config.json, config.json and its ``text_config``; ``default`` counts where none names any.

        Raises:
            CheckpointError: what is named is no token, or nothing is.
        """
        text = self.config.get("text_config")
        places = (self.read_json("generation_config.json"), self.config, text if isinstance(text, Mapping) else {})
        named = next((eos for place in places if (eos := place.get("eos_token_id")) is not None), default)
        ids = named if isinstance(named, Sequence) else [named]
        if not ids or not all(type(token) is int for token in ids):
            where = self.directory or self.repository
            raise CheckpointError(f"{where} names no tokens that end the output: eos_token_id is {named!r}")
        return frozenset(ids)

    def _find(self, name: str) -> Path | None:
        if self.directory is not None:
            path = self.directory / name
            return path if path.is_file() else None
        return hub.optional(self.repository, name, online=hub.reachable()) if self.repository else None


def resolve(
    ref: str, cards: Sequence[ModelCard], model_type: str, name: Callable[[Mapping[str, Any]], str], hub_ids: str
) -> Checkpoint | None:
    """The checkpoint of ``model_type`` that ``ref`` means, or None when it means nothing of the kind.

    A name or alias of ``cards`` wins over a directory of the same name, a directory over a hub id. Hub ids are those on
    the cards, any with ``hub_ids`` in its lower-case name, and any of the type in the local cache. ``name`` tells from
    config.json which card a checkpoint that was not asked for by name belongs to.

    Raises:
        CheckpointError: it is of the type, but damaged, incomplete or out of reach.
    """
    if named := next((card for card in cards if ref == card.name or ref in card.aliases), None):
        return _remote(ref, named.checkpoints[0], model_type, lambda _: named.name)
    path = Path(ref)
    try:
        if path.is_dir():
            return _directory(ref, path, model_type, name)
        if path.is_file():
            return None
    except (OSError, ValueError):  # not a path at all: too long, or with a NUL
        return None
    if listed := next((card for card in cards if ref in card.checkpoints), None):
        return _remote(ref, ref, model_type, lambda _: listed.name)
    owner, _, repository = ref.partition("/")
    if (owner and hub_ids in repository.lower() and "/" not in repository) or hub.cached(ref, "config.json"):
        return _remote(ref, ref, model_type, name)
    return None


def load_module(kind: Any, directory: Path, dtype: str, device: str) -> Any:
    """The weights in ``directory`` as a module of transformers' class ``kind``, ready to infer.

    Attention is ``sdpa``, which takes the additive masks that the decoder adapters pass.

    Raises:
        CheckpointError: files missing or damaged, or weights missing, superfluous or of another shape.
    """
    import torch

    try:
        module, report = kind.from_pretrained(
            directory,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            attn_implementation="sdpa",
        )
    except Exception as error:
        # transformers and safetensors raise OSError, RuntimeError, ValueError and their own for damaged files
        raise CheckpointError(f"{directory} cannot be loaded: {error}") from error
    require_equal(str(directory), report["missing_keys"], report["unexpected_keys"])
    return module.to(device).requires_grad_(False).eval()


def require_equal(name: str, missing: Iterable[str], superfluous: Iterable[str]) -> None:
    """Refuse weights that are not those of the module.

    Raises:
        CheckpointError: there are any; ``name`` is whose, and the first five are named.
    """
    for what, keys in (("lacks", missing), ("has superfluous weights:", superfluous)):
        if listed := sorted(map(str, keys)):
            more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
            raise CheckpointError(f"{name} {what} {', '.join(listed[:5])}{more}")


def _directory(ref: str, path: Path, model_type: str, name: Callable[[Mapping[str, Any]], str]) -> Checkpoint | None:
    if not (path / "config.json").is_file():
        return None
    try:
        config = read_json(path / "config.json")
    except CheckpointError:
        return None  # whose broken configuration this is cannot be told
    if config.get("model_type") != model_type:
        return None
    if not any((path / file).is_file() for file in ("model.safetensors", "model.safetensors.index.json")):
        raise CheckpointError(
            f"{path} is a {model_type} by its config.json, but has no model.safetensors; other formats can run code "
            "when they are opened and are not read: save it again with save_pretrained()"
        )
    return Checkpoint(name(config), ref, path, Pretrained(config, path))


def _remote(ref: str, repository: str, model_type: str, name: Callable[[Mapping[str, Any]], str]) -> Checkpoint | None:
    path = hub.fetch(repository, "config.json", online=hub.reachable())
    config = read_json(path) if path else {}
    if config.get("model_type") != model_type:
        return None
    return Checkpoint(name(config), ref, None, Pretrained(config, None, repository))
