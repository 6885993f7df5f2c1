"""The models by name. Importing this must stay cheap: it runs whenever plugins are listed."""

from __future__ import annotations

from asr_core.types import ModelCard
from asr_whisper.config import ENGLISH_VOCABULARY, Dimensions, WhisperConfig

_MULTILINGUAL, _CANTONESE = ENGLISH_VOCABULARY + 1, ENGLISH_VOCABULARY + 2  # large-v3 added <|yue|>
_SIZES = {"tiny": (4, 384), "base": (6, 512), "small": (12, 768), "medium": (24, 1024)}

DIMENSIONS: dict[str, Dimensions] = {
    **{f"whisper-{name}": Dimensions.of_size(n, w, _MULTILINGUAL, 80, n) for name, (n, w) in _SIZES.items()},
    **{f"whisper-{name}.en": Dimensions.of_size(n, w, ENGLISH_VOCABULARY, 80, n) for name, (n, w) in _SIZES.items()},
    "whisper-large-v1": Dimensions.of_size(32, 1280, _MULTILINGUAL, 80, 32),
    "whisper-large-v2": Dimensions.of_size(32, 1280, _MULTILINGUAL, 80, 32),
    "whisper-large-v3": Dimensions.of_size(32, 1280, _CANTONESE, 128, 32),
    "whisper-large-v3-turbo": Dimensions.of_size(32, 1280, _CANTONESE, 128, 4),
}
"""By card; large-v1 and large-v2 have the same."""


def _card(size: str, summary: str, *more: str, alias: str | None = None, hub: str | None = None) -> ModelCard:
    name, repository = f"whisper-{size}", hub or f"openai/whisper-{size}"
    return ModelCard(
        name=name,
        aliases=(alias,) if alias else (),
        checkpoints=(repository, *(more or (f"Systran/faster-whisper-{size}",))),
        summary=summary,
        license="MIT",
        config=WhisperConfig("transformers", DIMENSIONS[name], repository=repository),
    )


CARDS: tuple[ModelCard, ...] = (
    _card("tiny", "39 M parameters, 99 languages"),
    _card("tiny.en", "39 M parameters, English only"),
    _card("base", "74 M parameters, 99 languages"),
    _card("base.en", "74 M parameters, English only"),
    _card("small", "244 M parameters, 99 languages"),
    _card("small.en", "244 M parameters, English only"),
    _card("medium", "769 M parameters, 99 languages"),
    _card("medium.en", "769 M parameters, English only"),
    # The hub id without a number is the first large model, while the bare name means the newest to OpenAI's package.
    _card("large-v1", "1550 M parameters, 99 languages", hub="openai/whisper-large"),
    _card("large-v2", "1550 M parameters, 99 languages"),
    _card("large-v3", "1550 M parameters, 100 languages", alias="whisper-large"),
    _card(
        "large-v3-turbo",
        "809 M parameters, 100 languages, a four-layer decoder; not trained to translate",
        "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
        "deepdml/faster-whisper-large-v3-turbo-ct2",
        alias="whisper-turbo",
    ),
)
"""Every card has OpenAI's own hub id first, then CTranslate2 conversions."""


def find_card(name: str) -> ModelCard | None:
    """The card with this name or alias."""
    return next((card for card in CARDS if name == card.name or name in card.aliases), None)


def find_checkpoint(repository: str) -> ModelCard | None:
    """The card that lists this hub id."""
    return next((card for card in CARDS if repository in card.checkpoints), None)


def guess_card(dims: Dimensions) -> ModelCard:
    """The card a checkpoint of these dimensions was most likely made from; a stranger gets the nearest one.

    Of large-v1 and large-v2 it is the later, which nearly all finetunes start from.
    """

    def distance(card: ModelCard) -> tuple[bool, int, int, int, int]:
        own = DIMENSIONS[card.name]
        return (
            (own.vocabulary == ENGLISH_VOCABULARY) != (dims.vocabulary == ENGLISH_VOCABULARY),
            abs(own.audio_width - dims.audio_width),
            abs(own.audio_layers - dims.audio_layers),
            abs(own.mels - dims.mels),
            abs(own.text_layers - dims.text_layers),
        )

    return min(reversed(CARDS), key=distance)
