"""Cards: names, hub ids, dimensions, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from attrs import evolve

from asr_whisper.names import CARDS, DIMENSIONS, find_card, find_checkpoint, guess_card


def test_names_aliases_and_checkpoints_are_each_claimed_once() -> None:
    claimed = [name for card in CARDS for name in (card.name, *card.aliases, *card.checkpoints)]
    assert len(claimed) == len(set(claimed))


def test_every_card_has_openais_hub_id_first_and_a_conversion_after() -> None:
    for card in CARDS:
        assert card.checkpoints[0].startswith("openai/whisper-")
        assert len(card.checkpoints) > 1


def test_every_card_has_dimensions() -> None:
    assert {card.name for card in CARDS} == DIMENSIONS.keys()


@pytest.mark.parametrize(
    ("name", "model", "repository"),
    [
        ("whisper-base", "whisper-base", "openai/whisper-base"),
        ("whisper-tiny.en", "whisper-tiny.en", "openai/whisper-tiny.en"),
        ("whisper-large", "whisper-large-v3", "openai/whisper-large-v3"),
        ("whisper-turbo", "whisper-large-v3-turbo", "openai/whisper-large-v3-turbo"),
        ("whisper-large-v1", "whisper-large-v1", "openai/whisper-large"),
    ],
)
def test_names_mean_what_openais_package_means_by_them(name: str, model: str, repository: str) -> None:
    card = find_card(name)
    assert card is not None
    assert (card.name, card.checkpoints[0]) == (model, repository)


def test_a_hub_id_without_a_number_is_the_first_large_model_though_the_name_is_the_third() -> None:
    card = find_checkpoint("openai/whisper-large")
    assert card is not None
    assert card.name == "whisper-large-v1"


@pytest.mark.parametrize("name", ["whisper", "base", "Whisper-Base", "", "openai/whisper-base"])
def test_other_names_are_nobodys(name: str) -> None:
    assert find_card(name) is None


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_the_dimensions_of_a_card_lead_back_to_it(card) -> None:  # type: ignore[no-untyped-def]
    expected = "whisper-large-v2" if card.name == "whisper-large-v1" else card.name
    assert guess_card(DIMENSIONS[card.name]).name == expected


def test_a_pruned_decoder_is_nearest_to_turbo() -> None:
    distilled = evolve(DIMENSIONS["whisper-large-v3"], text_layers=2)
    assert guess_card(distilled).name == "whisper-large-v3-turbo"


def test_importing_the_cards_imports_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "tokenizers", "huggingface_hub"}
    code = f"import sys, asr_whisper.names; print(*{heavy} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == ""
