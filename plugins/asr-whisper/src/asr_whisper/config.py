"""What is known of a checkpoint before a weight is read: its dimensions and where its files are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import Attribute, field, frozen

from asr_core.errors import CheckpointError
from asr_whisper.source import Source

Kind = Literal["transformers", "ctranslate2", "openai"]

ENGLISH_VOCABULARY = 51864  # the only size without language tokens that mean anything
HEAD_WIDTH = 64  # of every published Whisper; files that do not say their number of heads are of these

# Several times what the largest Whisper has: a file may lie, but not make us build a million layers first.
_LIMITS = {
    "mels": 1024,
    "audio_layers": 256,
    "audio_width": 16_384,
    "audio_heads": 256,
    "audio_context": 65_536,
    "text_layers": 256,
    "text_width": 16_384,
    "text_heads": 256,
    "text_context": 65_536,
    "vocabulary": 1_000_000,
    "audio_hidden": 65_536,
    "text_hidden": 65_536,
}


def _bounded(_: Dimensions, attribute: Attribute[int], value: object) -> None:
    limit = _LIMITS[attribute.name]
    # bool is an int to Python, not to a file format
    if type(value) is not int or not 1 <= value <= limit:
        raise CheckpointError(f"not a Whisper model: {attribute.name} is {value!r}, expected 1 to {limit}")


def _size() -> Any:
    return field(validator=_bounded)


@frozen
class Dimensions:
    """The sizes that make one Whisper differ from another; ``*_hidden`` is the inner width of the feed-forward layers.

    Raises:
        CheckpointError: a size is no positive integer, beyond all reason, or does not go with the others.
    """

    mels: int = _size()
    audio_layers: int = _size()
    audio_width: int = _size()
    audio_heads: int = _size()
    audio_context: int = _size()
    text_layers: int = _size()
    text_width: int = _size()
    text_heads: int = _size()
    text_context: int = _size()
    vocabulary: int = _size()
    audio_hidden: int = _size()
    text_hidden: int = _size()

    def __attrs_post_init__(self) -> None:
        if self.audio_width != self.text_width:
            raise CheckpointError(
                f"encoder of width {self.audio_width}, decoder of width {self.text_width}: no Whisper"
            )
        if self.audio_width % self.audio_heads or self.text_width % self.text_heads:
            raise CheckpointError(f"width {self.text_width} is no multiple of the number of heads")

    @classmethod
    def of_size(cls, layers: int, width: int, vocabulary: int, mels: int, text_layers: int) -> Dimensions:
        """One of the published models, which share all else: 30 s windows, 448 tokens, heads of 64, inner width x 4."""
        return cls(
            mels=mels,
            audio_layers=layers,
            audio_width=width,
            audio_heads=width // HEAD_WIDTH,
            audio_context=1500,
            text_layers=text_layers,
            text_width=width,
            text_heads=width // HEAD_WIDTH,
            text_context=448,
            vocabulary=vocabulary,
            audio_hidden=4 * width,
            text_hidden=4 * width,
        )


@frozen
class Hints:
    """What a checkpoint says beside its weights; None where it says nothing and the tokenizer's defaults hold.

    ``alignment_heads`` are (decoder layer, head) pairs whose cross attention follows the audio.
    """

    suppress: tuple[int, ...] | None = None
    suppress_at_begin: tuple[int, ...] | None = None
    alignment_heads: tuple[tuple[int, int], ...] | None = None
    multilingual: bool | None = None


@frozen
class WhisperConfig:
    """A checkpoint of one of three ``kind`` s, found but not loaded.

    ``directory`` holds the files and is None while they are still in ``repository`` on the hub. ``weights`` is the one
    file of a CTranslate2 or OpenAI checkpoint, ``tokenizer`` its tokenizer.json; None means: look for it.
    """

    kind: Kind
    dims: Dimensions
    directory: Path | None = None
    repository: str | None = None
    weights: Source | None = None
    tokenizer: Source | None = None
    hints: Hints = field(factory=Hints, repr=False)

    @property
    def multilingual(self) -> bool:
        """Whether language and task tokens mean anything to the model; its vocabulary has them in any case."""
        if self.hints.multilingual is not None:
            return self.hints.multilingual
        return self.dims.vocabulary != ENGLISH_VOCABULARY

    @property
    def alignment_heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) pairs inside the decoder; all heads of its later half where the checkpoint names none.

        Heads outside the decoder are left out: distilled models are published with the list of their teacher.
        """
        layers, heads = self.dims.text_layers, self.dims.text_heads
        named = tuple(pair for pair in self.hints.alignment_heads or () if pair[0] < layers and pair[1] < heads)
        return named or tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))


def transformers_dimensions(config: Mapping[str, Any]) -> Dimensions:
    """Dimensions from a ``config.json`` of transformers, whose keys all Whisper repositories have."""
    names = {
        "mels": "num_mel_bins",
        "audio_layers": "encoder_layers",
        "audio_width": "d_model",
        "audio_heads": "encoder_attention_heads",
        "audio_context": "max_source_positions",
        "text_layers": "decoder_layers",
        "text_width": "d_model",
        "text_heads": "decoder_attention_heads",
        "text_context": "max_target_positions",
        "vocabulary": "vocab_size",
        "audio_hidden": "encoder_ffn_dim",
        "text_hidden": "decoder_ffn_dim",
    }
    missing = sorted({key for key in names.values() if key not in config})
    if missing:
        raise CheckpointError(f"config.json lacks {', '.join(missing)}")
    return Dimensions(**{name: config[key] for name, key in names.items()})


def read_hints(config: Mapping[str, Any]) -> Hints:
    """Hints from ``generation_config.json`` (transformers) or ``config.json`` (CTranslate2), by either's keys."""
    multilingual = config.get("is_multilingual")
    return Hints(
        suppress=_ids(config, "suppress_tokens", "suppress_ids"),
        suppress_at_begin=_ids(config, "begin_suppress_tokens", "suppress_ids_begin"),
        alignment_heads=_pairs(config.get("alignment_heads")),
        multilingual=multilingual if isinstance(multilingual, bool) else None,
    )


def _ids(config: Mapping[str, Any], *keys: str) -> tuple[int, ...] | None:
    values = next((config[key] for key in keys if config.get(key) is not None), None)
    if values is None:
        return None
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise CheckpointError(f"{keys[0]} is not a list of token ids")
    # -1 stands for "the default list" in OpenAI's own options
    return None if -1 in values else tuple(values)


def _pairs(values: Any) -> tuple[tuple[int, int], ...] | None:
    if not values:
        return None
    if not isinstance(values, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(index) is int and index >= 0 for index in pair)
        for pair in values
    ):
        raise CheckpointError("alignment_heads is not a list of pairs of layer and head")
    return tuple((layer, head) for layer, head in values)
