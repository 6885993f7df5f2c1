"""What a checkpoint can do and takes, from its configuration alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from transformers import MossTranscribeDiarizeConfig, MossTranscribeDiarizeFeatureExtractor

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.checkpoints import Pretrained
from asr_core.engines.embedded import TORCH
from asr_core.engines.protocol import EncodedRows, needed_features
from asr_core.errors import CheckpointError, EngineMismatchError, UnsupportedValueError
from asr_core.loading import served_capabilities
from asr_core.runtime.requests import generation_request
from asr_core.types import Checkpoint, CheckpointModel, ClipContext, NativeLimit, Samples, TranscriptionRequest
from asr_moss import plugin, policy
from asr_moss.config import MossConfig
from asr_moss.names import CARD, find

from .conftest import CONTEXT, RATE


def named(config: Any) -> CheckpointModel:
    return CheckpointModel(CARD, Checkpoint(CARD.name, CARD.name, None, config))


def limit(**changes: Any) -> NativeLimit:
    return policy.native_limit(Pretrained({**CARD.config.config, **changes}))


# Published facts


def test_the_card_says_what_transformers_says_of_the_published_checkpoint() -> None:
    published, ours = MossTranscribeDiarizeConfig(), MossConfig.of(CARD.config.config)
    assert ours == MossConfig(
        block=published.audio_chunk_size,
        merge=published.audio_merge_size,
        positions=published.audio_config.max_source_positions,
        mels=published.audio_config.num_mel_bins,
        context=published.text_config.max_position_embeddings,
        audio_token=published.audio_token_id,
    )
    assert MossConfig.of({}) == ours
    assert ours.hop == MossTranscribeDiarizeFeatureExtractor().hop_length


def test_limits_can_be_listed_without_a_checkpoint() -> None:
    found = plugin.native_limit(named(CARD.config))
    assert (found.sample_rate, found.seconds, found.context_tokens) == (16_000, 5400.0, 131_072)
    assert found.audio_tokens_per_second == 12.5
    assert found.sources.keys() == {"sample_rate", "seconds", "context_tokens", "audio_tokens_per_second"}


def test_capabilities_can_be_listed_without_a_checkpoint() -> None:
    able = plugin.capabilities(named(CARD.config))
    assert (able.tasks, able.languages, able.detects_language) == ({"transcribe"}, (), False)
    assert (able.segment_times, able.speakers, able.keywords, able.temperature) == (True, True, True, True)
    assert able.prompt == "instruction"


def test_listing_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom asr_moss import plugin\nfrom asr_moss.names import CARD\n"
        "from asr_core.types import Checkpoint, CheckpointModel\n"
        "model = CheckpointModel(CARD, Checkpoint(CARD.name, CARD.name, None, CARD.config))\n"
        "plugin.capabilities(model), plugin.native_limit(model)\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Limits


@pytest.mark.parametrize("seconds", [10, 300])
def test_the_encoders_window_is_not_the_limit(seconds: int) -> None:
    audio = {"max_source_positions": 50 * seconds, "num_mel_bins": 80}
    assert limit(audio_chunk_size=seconds * RATE, audio_config=audio).seconds == 5400.0


@pytest.mark.parametrize(("context", "seconds"), [(131_072, 5400.0), (122_524, 5400.0), (23_524, 1000.0)])
def test_the_limit_shrinks_with_the_context(context: int, seconds: float) -> None:
    """22.5 tokens a second and 1024 for the prompt: 122,524 is what 90 minutes take."""
    found = limit(text_config={"max_position_embeddings": context})
    assert found.seconds == seconds
    assert ("model card" in found.sources["seconds"]) == (seconds == 5400.0)


def test_a_context_without_room_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no room for audio"):
        limit(text_config={"max_position_embeddings": 1024})


@pytest.mark.parametrize(
    "changes",
    [
        {"audio_chunk_size": 0},
        {"audio_chunk_size": -1},
        {"audio_chunk_size": True},
        {"audio_chunk_size": 480_001},
        {"audio_merge_size": None},
        {"audio_merge_size": 7},
        {"audio_config": [1500]},
        {"audio_config": {"max_source_positions": "1500"}},
        {"text_config": {"max_position_embeddings": 1e5}},
    ],
    ids=str,
)
def test_configurations_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="not a configuration"):
        limit(**changes)


def test_the_context_is_the_limit(tiny: Transcriber) -> None:
    assert tiny.served.native_limit.seconds == pytest.approx((CONTEXT - 1024) / 22.5)


# Capabilities


def test_a_template_without_keywords_takes_none(directory: Path, tmp_path: Path) -> None:
    for file in directory.iterdir():
        (tmp_path / file.name).symlink_to(file)
    template = (tmp_path / "chat_template.jinja").read_text()
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.jinja").write_text(template.replace("keywords", "hotwords"))
    taken = [plugin.capabilities(named(find(str(path)).config)).keywords for path in (directory, tmp_path)]
    assert taken == [True, False]


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"language": "en"}, "language"),
        ({"task": "translate"}, "task"),
        ({"times": ["word"]}, "timestamp_granularities"),
        ({"beam": 4}, "beam"),
    ],
)
def test_what_it_cannot_do_is_refused(
    tiny: Transcriber, reading: Samples, request_: dict[str, Any], param: str
) -> None:
    with pytest.raises(UnsupportedValueError) as raised:
        tiny.transcribe(reading[:RATE], **request_)
    assert raised.value.param == param


def test_it_needs_of_an_engine_what_it_asks_for(tiny: Transcriber, reading: Samples) -> None:
    served = tiny.served
    clip = audio.from_array(reading[:RATE], RATE, RATE).clip()
    prepared = served.hooks.prepare_clip(served.model, clip, TranscriptionRequest(), ClipContext())
    rows = {span: EncodedRows([None] * span.tokens, b"") for span in prepared.spans}
    needs = needed_features(generation_request(prepared, rows, ""))
    assert needs == plugin.capabilities(named(CARD.config)).requires["transcribe"]
    assert needs <= TORCH.features


def test_an_engine_without_embeddings_cannot_run_it() -> None:
    with pytest.raises(EngineMismatchError, match="embeddings"):
        served_capabilities(CARD.name, plugin.capabilities(named(CARD.config)), evolve(TORCH, features=frozenset()))


# Encoder


def test_blocks_leave_at_once_two_at_a_time() -> None:
    found = plugin.encoder_policy()
    assert (found.max_items, found.max_wait_s, found.timeout_s, found.retry_items) == (2, 0.0, 300.0, True)
    assert (found.cache_entries, found.cache_bytes) == (4096, 2 << 30)


def test_the_longest_recordings_fit_the_queue() -> None:
    """Several at a time: all blocks of one come at once."""
    blocks = 5400 // 30
    assert plugin.encoder_policy().queue_bound > 5 * blocks


def test_sampled_output_repeats(tiny: Transcriber, reading: Samples) -> None:
    clip = reading[: 2 * RATE]
    greedy, *sampled = [tiny.transcribe(clip, temperature=temperature).text for temperature in (None, 1.0, 1.0)]
    assert sampled[0] == sampled[1] != greedy
