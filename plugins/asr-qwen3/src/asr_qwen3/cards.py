"""The models by name, and what a person types to mean one. Importing this must stay cheap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asr_core.checkpoints import Pretrained, resolve
from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint, ModelCard
from asr_qwen3.policy import CONTEXT, text_config

MODEL_TYPE = "qwen3_asr"
LARGE_WIDTH = 2048
"""Hidden size of the language model of the 1.7B; the 0.6B is narrower."""


def _card(name: str, size: str, width: int) -> ModelCard:
    config = {"text_config": {"hidden_size": width, "max_position_embeddings": CONTEXT}}
    return ModelCard(
        name=name,
        checkpoints=(f"Qwen/Qwen3-ASR-{size}-hf",),
        summary=f"{size} parameters, 30 languages, 20 minutes at once",
        license="Apache-2.0",
        config=Pretrained(config),
    )


CARDS = (_card("qwen3-asr", "1.7B", LARGE_WIDTH), _card("qwen3-asr-0.6b", "0.6B", 1024))


def resolve_checkpoint(ref: str) -> Checkpoint | None:
    """The checkpoint ``ref`` means: a name, a directory or a hub id with ``qwen3-asr`` in it.

    Raises:
        CheckpointError: it is a Qwen3-ASR, but damaged, incomplete, out of reach or not in transformers' layout.
    """
    checkpoint = resolve(ref, CARDS, MODEL_TYPE, card_name, "qwen3-asr")
    if checkpoint is not None and not checkpoint.config.config.keys() >= {"audio_config", "text_config"}:
        raise CheckpointError(
            f"{ref} is not in the layout that transformers saves, with audio_config and text_config in config.json: "
            f"take a repository whose name ends in -hf, such as {CARDS[0].checkpoints[0]}"
        )
    return checkpoint


def card_name(config: Mapping[str, Any]) -> str:
    """The card a checkpoint belongs to, by the width of its language model."""
    large, small = CARDS
    return (large if text_config(config).get("hidden_size", LARGE_WIDTH) >= LARGE_WIDTH else small).name
