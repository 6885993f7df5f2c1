"""What a checkpoint can do and takes, read from its small files alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run

import pytest
from transformers import FunAsrNanoConfig, FunAsrNanoFeatureExtractor
from transformers.models.fun_asr_nano.processing_fun_asr_nano import LANGUAGE_CODE_TO_NAME

from asr_core.api import Transcriber, load
from asr_core.errors import CheckpointError, UnsupportedValueError
from asr_core.types import Capabilities, Samples
from asr_funasr import plugin, policy
from asr_funasr.names import CARD
from asr_funasr.template import LANGUAGES, Fields, read_fields

from .conftest import AUDIO, BARE, PUBLISHED, WITH_ITN, Variant, pretrained

_LIST_CARD = """
import sys
from asr_funasr import policy
from asr_funasr.names import CARD
policy.capabilities(CARD.config), policy.native_limit(CARD.config)
print([name for name in ("torch", "transformers", "torchaudio", "jinja2") if name in sys.modules])
"""


def test_languages_are_those_of_the_processor() -> None:
    assert {code: name for code, name in LANGUAGE_CODE_TO_NAME.items() if len(code) == 2} == LANGUAGES


def test_the_card_promises_what_is_published() -> None:
    capabilities = policy.capabilities(CARD.config)
    assert capabilities.languages == ("zh", "en", "ja")
    assert capabilities.language_aliases == {"中文": "zh", "英文": "en", "日文": "ja"}
    assert (capabilities.prompt, capabilities.keywords, capabilities.options) == ("vocabulary", True, ())
    assert capabilities.tasks == {"transcribe"}
    limit = policy.native_limit(CARD.config)
    extractor, published = FunAsrNanoFeatureExtractor(), FunAsrNanoConfig()
    assert limit.sample_rate == extractor.sampling_rate
    assert limit.context_tokens == published.text_config.max_position_embeddings
    assert limit.audio_tokens_per_second == pytest.approx(1000 / (extractor.frame_shift * extractor.stride_lfr))


def test_listing_the_card_is_cheap() -> None:
    result = run([sys.executable, "-c", _LIST_CARD], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("template", "known"),
    [
        (PUBLISHED, Fields(language=True, prompt=True, keywords=True, itn=False)),
        (WITH_ITN, Fields(language=True, prompt=True, keywords=True, itn=True)),
        (BARE, Fields(language=False, prompt=False, keywords=False, itn=False)),
        # Chinese is what it is asked for anyway.
        (PUBLISHED.replace("'language'", "'language' and part.language != '中文'"), Fields(True, True, True, False)),
        (PUBLISHED.replace("'keywords'", "'hotwords'"), Fields(True, True, False, False)),
        # A count of the hotwords is not the hotwords.
        (PUBLISHED.replace("| join(', ')", "| length"), Fields(True, True, False, False)),
        (PUBLISHED.replace("'text'", "'context'"), Fields(True, False, True, False)),
        (BARE + "{% if itn %}{{ raise_exception('no') }}{% endif %}", Fields(False, False, False, False)),
    ],
)
def test_only_what_the_template_knows_can_be_asked_for(variant: Variant, template: str, known: Fields) -> None:
    checkpoint = pretrained(variant(chat_template_jinja=template))
    assert read_fields(checkpoint) == known
    capabilities = policy.capabilities(checkpoint)
    assert bool(capabilities.languages) == bool(capabilities.language_aliases) == known.language
    assert (capabilities.prompt is not None, capabilities.keywords) == (known.prompt, known.keywords)
    assert [option.name for option in capabilities.options] == (["itn"] if known.itn else [])


@pytest.mark.parametrize("name", ["chat_template_json", "processor_config_json"])
def test_templates_of_older_checkpoints_are_found(variant: Variant, name: str) -> None:
    texts = {name: json.dumps({"chat_template": WITH_ITN}), "chat_template_jinja": None}
    assert read_fields(pretrained(variant(**texts))).itn


@pytest.mark.parametrize("template", [None, "{% if %}", "{{ messages[7].content }}", "{{ raise_exception('no') }}"])
def test_a_template_that_cannot_be_used_is_named(variant: Variant, template: str | None) -> None:
    with pytest.raises(CheckpointError, match="template"):
        policy.capabilities(pretrained(variant(chat_template_jinja=template)))


@pytest.mark.parametrize("window", [10, 30, 300])
def test_the_limit_is_its_own_number(checkpoint: Path, variant: Variant, window: int) -> None:
    settings = json.loads((checkpoint / "processor_config.json").read_text())
    settings["feature_extractor"]["chunk_length"] = window
    changed = pretrained(variant(processor_config_json=json.dumps(settings)))
    assert policy.native_limit(changed) == policy.native_limit(pretrained(checkpoint))
    assert policy.native_limit(changed).seconds == 30


def test_numbers_come_from_the_checkpoint(checkpoint: Path, variant: Variant) -> None:
    settings = json.loads((checkpoint / "processor_config.json").read_text())
    settings["feature_extractor"] |= {"sampling_rate": 8_000, "stride_lfr": 4}
    config = json.loads((checkpoint / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 777
    texts = {"processor_config_json": json.dumps(settings), "config_json": json.dumps(config)}
    limit = policy.native_limit(pretrained(variant(**texts)))
    assert (limit.sample_rate, limit.context_tokens, limit.audio_tokens_per_second) == (8_000, 777, 25)
    older = {
        "processor_config_json": None,
        "preprocessor_config_json": json.dumps(settings["feature_extractor"]),
    }
    assert policy.native_limit(pretrained(variant(**older))).sample_rate == 8_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("processor_config_json", "{"),
        ("processor_config_json", "[]"),
        ("processor_config_json", '{"feature_extractor": 7}'),
        ("processor_config_json", '{"feature_extractor": {"stride_lfr": 0}}'),
        ("processor_config_json", '{"feature_extractor": {"sampling_rate": "fast"}}'),
        ("config_json", '{"model_type": "fun_asr_nano", "text_config": []}'),
        ("config_json", '{"model_type": "fun_asr_nano", "text_config": {"max_position_embeddings": -1}}'),
    ],
)
def test_damaged_settings_are_named(variant: Variant, name: str, text: str) -> None:
    with pytest.raises(CheckpointError):
        policy.native_limit(pretrained(variant(**{name: text})))


def test_batches_are_bounded_and_kept() -> None:
    encoder = policy.encoder_policy()
    assert (encoder.max_items, encoder.max_wait_s, encoder.retry_items) == (8, 0.004, True)
    assert (encoder.cache_entries, encoder.cache_bytes) == (4096, 2 * 1024**3)
    assert encoder.max_cost is not None
    assert encoder.max_cost >= 500  # a clip of 30 s


def test_text_is_final_as_it_comes() -> None:
    assert policy.streaming_policy().commit == "token"
    assert not hasattr(plugin, "review_output")


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"language": "xx"}, "language"),
        ({"task": "translate"}, "task"),
        ({"times": ["segment"]}, "timestamp_granularities"),
        ({"itn": True}, "itn"),
        ({"hotwords": "fox"}, "hotwords"),
    ],
)
def test_what_it_cannot_do_is_refused(
    transcriber: Transcriber, reading: Samples, request_: dict[str, object], param: str
) -> None:
    with pytest.raises(UnsupportedValueError) as raised:
        transcriber.transcribe(reading[:16_000], **request_)  # type: ignore[arg-type]
    assert raised.value.param == param


def test_a_template_that_knows_nothing_takes_nothing(variant: Variant, reading: Samples) -> None:
    with load(str(variant(chat_template_jinja=BARE)), device="cpu", dtype="float32") as bare:
        assert bare.served.capabilities == Capabilities(
            temperature=True, int8="on_request", requires={"transcribe": frozenset({"embeddings"})}
        )
        assert bare.transcribe(reading[:16_000]).text
        for field, value in {"language": "en", "prompt": "x", "keywords": ["x"]}.items():
            with pytest.raises(UnsupportedValueError) as raised:
                bare.transcribe(reading[:16_000], **{field: value})
            assert raised.value.param == field


def test_the_template_must_place_the_audio(variant: Variant) -> None:
    for text in (BARE.replace(AUDIO, ""), BARE + AUDIO):
        with pytest.raises(CheckpointError, match="place the audio once"):
            load(str(variant(chat_template_jinja=text)), device="cpu")
