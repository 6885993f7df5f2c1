"""What a plugin says of its models, and the handle it is given back at three stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import Factory, field, frozen

Task = Literal["transcribe", "translate"]
PromptMeaning = Literal["previous_text", "vocabulary", "instruction"]
Int8Products = Literal["refused", "on_request", "automatic"]


@frozen
class ModelCard:
    """A model by name: the only thing known before a checkpoint is looked at.

    ``checkpoints`` are hub ids or other references that mean this model, the first one being what ``name`` stands for.
    ``config`` is what the plugin knows of that first one without looking, in the type of its ``Checkpoint.config``, so
    that capabilities and limits can be listed before anything is fetched. ``hook_api`` is the number of the contract
    the plugin was written for.
    """

    name: str
    aliases: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    summary: str = ""
    license: str = ""
    hook_api: int = 0
    config: Any = field(default=None, repr=False, eq=False)


@frozen
class Checkpoint:
    """Weights and configuration that were found, with the configuration read.

    ``model`` is the name of the card it belongs to, ``path`` the directory or file (None while it is still on a hub),
    ``reference`` what the person typed. ``config`` is for the plugin alone.
    """

    model: str
    reference: str
    path: Path | None
    config: Any = field(default=None, repr=False, eq=False)


@frozen
class OptionSpec:
    """A request field beyond the shared ones, declared by a plugin so that it is checked before any work."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "audio"]
    summary: str
    choices: tuple[str, ...] = ()


@frozen
class Capabilities:
    """What one checkpoint can do; whatever is not declared is refused before audio is decoded.

    ``languages`` are lower-case ISO 639 codes, empty when the model does not let a caller choose; a request holds one
    of them, whatever tag or name the caller wrote. ``language_aliases`` are further spellings of a model's own, in
    lower case (the core knows tags and English names). ``prompt`` is what a caller's prompt means to the model, None
    when it has no use for one. ``requires`` names, per capability (a task, an option or one of the fields below), the
    engine features without which it cannot be served. ``generates`` is False for a model without a decoder, which needs
    no engine and implements ``recognize_batch``. ``word_times`` promises the hooks of alignment, of a served model
    those or an aligner. ``candidates`` tells that detection can be held to the languages a caller thinks possible.
    ``int8`` says whether ``load_weights`` takes that dtype: not at all, if an operator asks for it, or also of its own
    accord where that is fastest, as it has been measured to cost no words.

    Raises:
        ValueError: ``requires`` names something that is no capability, or an alias no language.
    """

    tasks: frozenset[Task] = frozenset({"transcribe"})
    languages: tuple[str, ...] = ()
    language_aliases: Mapping[str, str] = Factory(dict)
    detects_language: bool = False
    candidates: bool = False
    segment_times: bool = False
    word_times: bool = False
    speakers: bool = False
    prompt: PromptMeaning | None = None
    keywords: bool = False
    temperature: bool = False
    options: tuple[OptionSpec, ...] = ()
    requires: Mapping[str, frozenset[str]] = Factory(dict)
    generates: bool = True
    int8: Int8Products = "refused"

    def __attrs_post_init__(self) -> None:
        optional = {"segment_times", "word_times", "speakers", "detects_language", "candidates", "prompt", "keywords"}
        optional |= {"temperature", *(option.name for option in self.options)}
        if unknown := self.requires.keys() - self.tasks - optional:
            raise ValueError(f"requires names what is no capability here: {', '.join(sorted(unknown))}")
        if unknown := set(self.language_aliases.values()) - set(self.languages):
            raise ValueError(f"language_aliases name what is no language here: {', '.join(sorted(unknown))}")


@frozen(eq=False)
class Weights:
    """What ``load_weights`` put in memory, of the parts it was asked for.

    ``encoder`` is the plugin's own. ``decoder`` speaks the engine's decoder protocol. Both are opaque to everything
    but the engine and the plugin.
    """

    encoder: Any = field(default=None, repr=False)
    decoder: Any = field(default=None, repr=False)


@frozen(eq=False)
class CheckpointModel:
    """A model whose configuration was read and nothing more."""

    card: ModelCard
    checkpoint: Checkpoint


@frozen(eq=False)
class FrontendModel(CheckpointModel):
    """A model whose ``frontend``, whatever ``prepare_frontend`` returned, is ready."""

    frontend: Any = field(repr=False)


@frozen(eq=False)
class LoadedModel(FrontendModel):
    """A model with ``weights`` in memory on ``device`` (``cpu``, ``cuda:0``) in ``dtype`` (``float32``, ...)."""

    weights: Weights
    device: str
    dtype: str
