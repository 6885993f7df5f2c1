"""What checkpoints can do, and on which engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
from whisper.tokenizer import LANGUAGES

from asr_core.engines.embedded import TORCH
from asr_core.errors import EngineMismatchError
from asr_core.loading import served_capabilities
from asr_core.types import Capabilities, CheckpointModel, ChunkPolicy, EncoderPolicy
from asr_whisper import plugin, policy
from asr_whisper.checkpoints import resolve
from asr_whisper.config import Hints
from asr_whisper.names import CARDS, DIMENSIONS, find_card
from asr_whisper.tokenizer import SpecialTokens, load_tokenizer

from .test_tokenizer import found

NAMES = [card.name for card in CARDS]


def model(name: str) -> CheckpointModel:
    """The installed base model, or what its configuration would be with the dimensions of another."""
    card = find_card(name)
    assert card is not None
    base = found("whisper-base")
    config = evolve(base.config, dims=DIMENSIONS[name], hints=Hints())
    return CheckpointModel(card, evolve(base, model=name, config=config))


def installed(name: str) -> CheckpointModel:
    card = find_card(name)
    assert card is not None
    return CheckpointModel(card, found(name))


# Capabilities


def test_base_transcribes_and_translates_99_languages() -> None:
    able = plugin.capabilities(installed("whisper-base"))
    assert able.tasks == {"transcribe", "translate"}
    assert len(able.languages) == 99
    assert able.detects_language
    assert able.segment_times


def test_an_english_only_model_transcribes_english() -> None:
    able = plugin.capabilities(installed("whisper-tiny.en"))
    assert able.tasks == {"transcribe"}
    assert able.languages == ("en",)
    assert not able.detects_language
    assert able.segment_times


def test_turbo_transcribes_100_languages_and_translates_none() -> None:
    able = plugin.capabilities(model("whisper-large-v3-turbo"))
    assert able.tasks == {"transcribe"}
    assert len(able.languages) == 100
    assert able.languages[-1] == "yue"
    assert able.detects_language


@pytest.mark.parametrize("name", NAMES)
def test_who_translates_and_what_is_spoken(name: str) -> None:
    able = plugin.capabilities(model(name))
    # OpenAI's README: .en models know only English, turbo was not trained to translate, Cantonese came with large-v3.
    assert ("translate" in able.tasks) == (not name.endswith(".en") and name != "whisper-large-v3-turbo")
    count = 1 if name.endswith(".en") else 100 if name.startswith("whisper-large-v3") else 99
    assert list(able.languages) == list(LANGUAGES)[:count]


def test_a_distilled_decoder_does_not_translate() -> None:
    large = model("whisper-large-v3")
    dims = evolve(DIMENSIONS["whisper-large-v3"], text_layers=2)
    distilled = CheckpointModel(large.card, evolve(large.checkpoint, config=evolve(large.checkpoint.config, dims=dims)))
    assert plugin.capabilities(distilled).tasks == {"transcribe"}


def test_languages_are_those_of_the_tokenizer_in_order() -> None:
    base = installed("whisper-base")
    special = SpecialTokens.of(load_tokenizer(base.checkpoint), multilingual=True)
    assert plugin.capabilities(base).languages == tuple(special.languages)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_promised_that_no_code_serves(name: str) -> None:
    able = plugin.capabilities(model(name))
    assert not any((able.speakers, able.keywords))
    assert [option.name for option in able.options] == ["beam_size"]
    assert able.prompt == "previous_text"
    assert able.temperature


def test_candidates_are_for_those_that_detect() -> None:
    assert plugin.capabilities(installed("whisper-base")).candidates
    assert not plugin.capabilities(installed("whisper-tiny.en")).candidates


# Limits


@pytest.mark.parametrize("name", NAMES)
def test_one_forward_takes_half_a_minute(name: str) -> None:
    limit = plugin.native_limit(model(name))
    assert limit.sample_rate == 16_000
    assert limit.seconds == 30.0
    assert limit.context_tokens == 448
    assert limit.audio_tokens_per_second == 50
    assert limit.sources.keys() == {"sample_rate", "seconds", "context_tokens", "audio_tokens_per_second"}
    assert "1500" in limit.sources["seconds"]


def test_the_limits_follow_the_dimensions() -> None:
    base = installed("whisper-base")
    dims = evolve(base.checkpoint.config.dims, audio_context=500, text_context=100)
    short = CheckpointModel(base.card, evolve(base.checkpoint, config=evolve(base.checkpoint.config, dims=dims)))
    limit = plugin.native_limit(short)
    assert (limit.seconds, limit.context_tokens, limit.audio_tokens_per_second) == (10.0, 100, 50)
    assert plugin.chunk_policy(short).target_s == 10.0


def test_chunks_fill_the_window_overlap_and_end_where_readers_pause() -> None:
    assert plugin.chunk_policy(installed("whisper-base")) == ChunkPolicy(
        target_s=30.0, search_s=7.0, overlap_s=2.0, parallel=8
    )
    assert plugin.encoder_policy() == EncoderPolicy()


# Engines


def served(name: str, *lacking: str) -> Capabilities:
    engine = evolve(TORCH, name="lesser", features=TORCH.features - set(lacking))
    return served_capabilities(name, plugin.capabilities(model(name)), engine)


def without(what: str, **fields: Any) -> Capabilities:
    """All that base can do but ``what``."""
    able = served("whisper-base")
    return evolve(able, requires={name: needs for name, needs in able.requires.items() if name != what}, **fields)


@pytest.mark.parametrize("name", ["whisper-base", "whisper-tiny.en"])
def test_the_embedded_engine_withdraws_nothing(name: str) -> None:
    assert served(name) == plugin.capabilities(model(name))


@pytest.mark.parametrize("feature", ["cross_attention", "probes", "rules"])
@pytest.mark.parametrize("name", ["whisper-base", "whisper-tiny.en"])
def test_an_engine_without_what_every_clip_needs_is_refused(name: str, feature: str) -> None:
    with pytest.raises(EngineMismatchError, match=f"'lesser' cannot run '{name}': it lacks {feature}$"):
        served(name, feature)


def test_an_engine_that_knows_no_foreign_rules_gives_no_segment_times() -> None:
    assert served("whisper-base", "custom_rules") == without("segment_times", segment_times=False)


def test_an_engine_that_shows_no_attention_gives_no_word_times() -> None:
    assert served("whisper-base").word_times
    assert served("whisper-base", "attention") == without("word_times", word_times=False)


def test_an_engine_that_follows_one_text_offers_no_beams() -> None:
    assert served("whisper-base", "beams") == without("beam_size", options=())


def test_a_decoder_fed_by_embeddings_is_not_needed() -> None:
    assert served("whisper-base", "embeddings") == served("whisper-base")


@pytest.mark.parametrize("window", [10, 30, 300])
def test_the_extractors_window_is_not_the_models_limit(tmp_path: Path, window: int) -> None:
    """A checkpoint whose feature extractor says another window: the limit comes from the encoder's positions."""
    size = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    WhisperForConditionalGeneration(WhisperConfig(**size, **heads)).save_pretrained(tmp_path)
    WhisperFeatureExtractor(chunk_length=window).save_pretrained(tmp_path)
    checkpoint = resolve(str(tmp_path))
    assert checkpoint is not None
    limit = policy.native_limit(checkpoint.config)
    assert limit.seconds == 30.0
    assert "1500 encoder positions" in limit.sources["seconds"]
