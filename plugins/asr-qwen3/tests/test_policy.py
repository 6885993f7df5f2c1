"""Names, limits and capabilities, and that no number is taken for another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from transformers import Qwen3ASRConfig
from transformers.models.qwen3_asr.processing_qwen3_asr import LANGUAGE_CODE_TO_NAME

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.checkpoints import Pretrained
from asr_core.engines.embedded import TORCH
from asr_core.errors import AsrError, AudioTooLongError, CheckpointError, InvalidRequestError, UnsupportedValueError
from asr_core.loading import served_capabilities
from asr_core.types import AudioSlice, Checkpoint, CheckpointModel, ClipContext, Samples, TranscriptionRequest
from asr_qwen3 import plugin, policy
from asr_qwen3.cards import CARDS, resolve_checkpoint
from asr_qwen3.frontend import Frontend, prepare_clip


def named(config: Any) -> CheckpointModel:
    return CheckpointModel(CARDS[0], Checkpoint(CARDS[0].name, "x", None, Pretrained(config)))


def test_the_cards_answer_with_no_file_at_hand() -> None:
    assert [card.checkpoints for card in CARDS] == [("Qwen/Qwen3-ASR-1.7B-hf",), ("Qwen/Qwen3-ASR-0.6B-hf",)]
    for card in CARDS:
        model = CheckpointModel(card, Checkpoint(card.name, card.name, None, card.config))
        limit = plugin.native_limit(model)
        assert (limit.seconds, limit.context_tokens, limit.audio_tokens_per_second) == (1200.0, 65_536, 13.0)


def test_defaults_are_those_of_transformers() -> None:
    """A configuration that leaves something out means what transformers makes of it."""
    for said in ({}, {"text_config": {"model_type": "qwen3", "hidden_size": 64}, "audio_config": {}}):
        meant = Qwen3ASRConfig(**json.loads(json.dumps(said)))
        assert policy.audio_token(said) == meant.audio_token_id
        assert policy.context_tokens(said) == meant.text_config.max_position_embeddings
        assert policy.window_frames(said) == meant.audio_config.n_window_infer
        assert policy.chunk_frames(said) == 2 * meant.audio_config.n_window


@pytest.mark.parametrize(("width", "name"), [(2048, "qwen3-asr"), (1024, "qwen3-asr-0.6b"), (48, "qwen3-asr-0.6b")])
def test_a_directory_belongs_to_the_card_of_its_width(tmp_path: Path, width: int, name: str) -> None:
    config = {"model_type": "qwen3_asr", "audio_config": {}, "text_config": {"hidden_size": width}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").touch()
    checkpoint = resolve_checkpoint(str(tmp_path))
    assert checkpoint is not None
    assert checkpoint.model == name


def test_the_original_layout_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_asr", "thinker_config": {}}')
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(CheckpointError, match="-hf"):
        resolve_checkpoint(str(tmp_path))


def test_another_models_directory_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    assert resolve_checkpoint(str(tmp_path)) is None


@pytest.mark.parametrize("seconds", [10, 30, 300])
def test_the_extractors_padding_length_is_no_limit(
    checkpoint: Path, model: Transcriber, reading: Samples, tmp_path: Path, seconds: int
) -> None:
    directory = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    path = directory / "processor_config.json"
    config = json.loads(path.read_text())
    config["feature_extractor"] |= {"chunk_length": seconds, "n_samples": seconds * 16_000}
    path.write_text(json.dumps(config))
    sound = reading[: 12 * 16_000]
    with load(str(directory), device="cpu", dtype="float32") as other:
        assert other.served.model.frontend.extractor.chunk_length == seconds
        assert other.served.native_limit == model.served.native_limit
        assert other.served.native_limit.seconds == 1200.0
        assert other.served.chunk_policy.target_s == 30.0
        assert other.transcribe(sound, temperature=0.0).text == model.transcribe(sound, temperature=0.0).text


def test_the_chunk_target_is_its_own_number() -> None:
    assert plugin.chunk_policy() == evolve(policy.chunk_policy(), target_s=30.0, min_tail_s=0.5)
    assert plugin.native_limit(named({"text_config": {"max_position_embeddings": 2048}})).seconds == 1200.0


def test_codes_are_those_of_the_processor() -> None:
    able = plugin.capabilities()
    assert able.languages == tuple(LANGUAGE_CODE_TO_NAME)
    assert len(able.languages) == 30
    assert able.language_aliases["cn"] == "zh"
    assert able.detects_language
    assert able.prompt == "vocabulary"
    assert (able.tasks, able.keywords, able.segment_times, able.options) == ({"transcribe"}, False, False, ())


def test_an_engine_without_embeddings_cannot_serve_it() -> None:
    able = plugin.capabilities()
    assert served_capabilities("qwen3-asr", able, TORCH) == able
    with pytest.raises(AsrError, match="embeddings"):
        served_capabilities("qwen3-asr", able, evolve(TORCH, features=TORCH.features - {"embeddings"}))


@pytest.mark.parametrize("code", ["cn", "zh-CN", "Chinese", "ZH", "zh_TW"])
def test_chinese_by_any_name(model: Transcriber, speech: Samples, code: str) -> None:
    assert model.transcribe(speech, language=code).language == "zh"


# Wrong inputs


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"language": "tlh"}, "language"),
        ({"task": "translate"}, "task"),
        ({"keywords": ["a"]}, "keywords"),
        ({"temperature": 9.0}, "temperature"),
        ({"times": ["segment"]}, "timestamp_granularities"),
        ({"itn": True}, "itn"),
    ],
)
def test_what_it_cannot_do_is_refused(model: Transcriber, speech: Samples, wrong: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        model.transcribe(speech, **wrong)
    assert raised.value.param is not None
    assert raised.value.param.startswith(param)


def test_keywords_are_unsupported(model: Transcriber, speech: Samples) -> None:
    with pytest.raises(UnsupportedValueError):
        model.transcribe(speech, keywords=["Norland"])


@pytest.fixture
def narrow(frontend: Frontend) -> Frontend:
    """As if the language model had 300 positions: 5 s have 65 rows."""
    return evolve(frontend, context=300)


def clip_of(seconds: float) -> Any:
    return audio.from_array(np.full(round(seconds * 16_000), 0.1, np.float32), 16_000, 16_000).clip()


def test_audio_that_leaves_no_room_is_refused_before_it_is_listened_to(narrow: Frontend) -> None:
    deaf = evolve(narrow, extractor=None)
    with pytest.raises(AudioTooLongError, match="context of 300") as raised:
        prepare_clip(deaf, clip_of(25), TranscriptionRequest(), ClipContext())
    assert (raised.value.layer, raised.value.param) == ("native_limit", "file")


def test_a_prompt_that_leaves_no_room_is_at_fault_itself(narrow: Frontend) -> None:
    request = TranscriptionRequest(prompt="Dashwood " * 200)
    with pytest.raises(InvalidRequestError, match="prompt has") as raised:
        prepare_clip(narrow, clip_of(5), request, ClipContext())
    assert (raised.value.layer, raised.value.param) == ("frontend", "prompt")
    with pytest.raises(AudioTooLongError):
        prepare_clip(narrow, clip_of(25), request, ClipContext())


def test_the_budget_grows_with_the_audio_and_stays_in_the_context(frontend: Frontend, narrow: Frontend) -> None:
    def budget(frontend: Frontend, seconds: float) -> int:
        prepared = prepare_clip(frontend, clip_of(seconds), TranscriptionRequest(language="en"), ClipContext())
        used = sum(part.count if isinstance(part, AudioSlice) else len(part) for part in prepared.prompt)
        assert used + len(prepared.given) + prepared.budget <= frontend.context
        return prepared.budget

    assert [budget(frontend, seconds) for seconds in (1, 12.8, 12.85, 60)] == [128, 128, 129, 600]
    assert 0 < budget(narrow, 15) < 128


def test_twenty_minutes_fit_the_published_context(frontend: Frontend) -> None:
    published = evolve(frontend, context=policy.CONTEXT)
    prepared = prepare_clip(published, clip_of(1200), TranscriptionRequest(), ClipContext())
    assert sum(span.tokens for span in prepared.spans) == 1200 * 13
    assert prepared.budget == 12_000
