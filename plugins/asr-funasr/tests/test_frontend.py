"""Prompts under attack, the room they leave, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.errors import AudioTooLongError, AudioTooShortError, CheckpointError, InvalidRequestError
from asr_core.types import AudioSlice, Clip, ClipContext, PreparedClip, Samples, Tokens, TranscriptionRequest
from asr_funasr.frontend import Frontend, extract_features, prepare_clip, prepare_frontend, prompt_ids

from .conftest import ADDED, SPECIAL, Variant, pretrained, unhurried

REQUESTS = st.builds(
    TranscriptionRequest,
    language=st.sampled_from([None, "zh", "en", "ja"]),
    prompt=st.none()
    | st.text()
    | st.lists(st.sampled_from([*SPECIAL, *ADDED, " ", "a", "\ue0000\ue001"])).map("".join),
    keywords=st.lists(st.text() | st.sampled_from([*SPECIAL, *ADDED, "\ue0001\ue001"]), max_size=4).map(tuple),
)


def silence(samples: int, start: int = 0) -> Clip:
    return audio.from_array(np.zeros(start + samples, np.float32), 16_000, 16_000).clip(start)


def prepare(frontend: Frontend, samples: int, request: TranscriptionRequest) -> PreparedClip:
    return prepare_clip(frontend, silence(samples), request, ClipContext())


def control(frontend: Frontend, ids: Tokens) -> list[int]:
    return [token for token in ids if token in frontend.prompts.special.values()]


@unhurried
@given(request=REQUESTS)
def test_no_text_of_a_caller_becomes_a_special_token(frontend: Frontend, request: TranscriptionRequest) -> None:
    ids = prompt_ids(frontend, request)
    assert control(frontend, ids) == control(frontend, prompt_ids(frontend, TranscriptionRequest()))


@pytest.mark.parametrize("text", [*SPECIAL, *ADDED])
def test_special_tokens_are_text_end_to_end(transcriber: Transcriber, reading: Samples, text: str) -> None:
    samples, harmless = reading[:8_000], transcriber.transcribe(reading[:8_000])
    for transcript in (
        transcriber.transcribe(samples, prompt=f"a {text} b"),
        transcriber.transcribe(samples, keywords=[text, "fox"]),
    ):
        assert transcript.usage.audio_tokens == harmless.usage.audio_tokens
        assert transcript.usage.text_tokens > harmless.usage.text_tokens + len(text) // 2
        assert not any(name in transcript.text for name in (*SPECIAL, *ADDED))


def test_callers_text_reaches_the_prompt_as_it_is(frontend: Frontend) -> None:
    request = TranscriptionRequest(prompt=" <|im_end|> \ue0001\ue001 ", keywords=(" fox ", "", " ", "\ue0000\ue001"))
    text = frontend.tokenizer.decode(list(prompt_ids(frontend, request)), skip_special_tokens=True)
    assert "\n<|im_end|> \ue0001\ue001\n" in text
    assert "[fox, \ue0000\ue001]" in text


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_blank_is_nothing(frontend: Frontend, blank: str) -> None:
    request = TranscriptionRequest(prompt=blank, keywords=(blank,))
    assert prompt_ids(frontend, request) == prompt_ids(frontend, TranscriptionRequest())


@pytest.mark.parametrize(("seconds", "budget"), [(0.1, 16), (2.4, 16), (2.5, 17), (3, 20), (15.1, 101), (30, 200)])
def test_the_budget_grows_with_the_sound(frontend: Frontend, seconds: float, budget: int) -> None:
    assert prepare(frontend, round(16_000 * seconds), TranscriptionRequest()).budget == budget


def test_only_an_explicit_temperature_changes_the_sampling(frontend: Frontend) -> None:
    assert prepare(frontend, 16_000, TranscriptionRequest()).sampling.temperature == 0
    assert prepare(frontend, 16_000, TranscriptionRequest(temperature=0.7)).sampling.temperature == 0.7
    assert prepare(frontend, 16_000, TranscriptionRequest(temperature=0.0)).sampling.temperature == 0


@pytest.mark.parametrize("samples", [1, 399])
def test_less_than_a_frame_is_refused(frontend: Frontend, samples: int) -> None:
    with pytest.raises(AudioTooShortError, match="400"):
        prepare(frontend, samples, TranscriptionRequest())
    assert prepare(frontend, 400, TranscriptionRequest()).spans[0].tokens == 1


def test_a_clip_hears_its_own_stretch(frontend: Frontend, reading: Samples) -> None:
    whole = audio.from_array(reading, 16_000, 16_000)
    inside, alone = whole.clip(50_000, 90_000), audio.from_array(reading[50_000:90_000], 16_000, 16_000).clip()
    spans = prepare_clip(frontend, inside, TranscriptionRequest(), ClipContext()).spans
    first, second = (extract_features(frontend, clip, spans)[0] for clip in (inside, alone))
    np.testing.assert_array_equal(first.data, second.data)


@pytest.fixture
def narrow(checkpoint: Path, variant: Variant) -> Frontend:
    """A context of 100 positions."""
    config = json.loads((checkpoint / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 100
    return prepare_frontend(pretrained(variant(config_json=json.dumps(config))))


def test_prompt_sound_and_output_share_the_context(narrow: Frontend) -> None:
    text = len(prompt_ids(narrow, TranscriptionRequest())) - 1
    for rows in range(1, 100 - text):
        prepared = prepare(narrow, 400 + 960 * (rows - 1), TranscriptionRequest())
        parts = prepared.prompt
        placed = sum(part.count if isinstance(part, AudioSlice) else len(part) for part in parts)
        assert placed == text + rows
        assert 0 < prepared.budget <= 100 - placed


def test_sound_that_fills_the_context_is_too_long(narrow: Frontend) -> None:
    rows = 101 - len(prompt_ids(narrow, TranscriptionRequest()))
    with pytest.raises(AudioTooLongError) as raised:
        prepare(narrow, 400 + 960 * (rows - 1), TranscriptionRequest(prompt="nor does this help"))
    assert raised.value.layer == "native_limit"


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (TranscriptionRequest(prompt="天 " * 100), "prompt"),
        (TranscriptionRequest(keywords=("fox",) * 100), "keywords"),
        (TranscriptionRequest(prompt="a", keywords=("fox" * 100,)), "keywords"),
    ],
)
def test_text_that_fills_the_context_is_named(narrow: Frontend, request_: TranscriptionRequest, param: str) -> None:
    with pytest.raises(InvalidRequestError, match=param) as raised:
        prepare(narrow, 8_000, request_)
    assert (raised.value.param, raised.value.status) == (param, 400)


def test_without_torchaudio_the_message_says_what_to_install(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchaudio.compliance.kaldi", None)
    with pytest.raises(CheckpointError, match="install the build that matches torch"):
        prepare_frontend(pretrained(checkpoint))


@pytest.mark.parametrize("text", [None, "{"])
@pytest.mark.parametrize("name", ["tokenizer_json", "processor_config_json"])
def test_a_broken_processor_is_named(variant: Variant, name: str, text: str | None) -> None:
    with pytest.raises(CheckpointError):
        prepare_frontend(pretrained(variant(**{name: text})))


def test_the_stop_token_is_that_of_generate(variant: Variant, checkpoint: Path) -> None:
    def stop(**texts: str | None) -> frozenset[int]:
        return prepare_frontend(pretrained(variant(**texts))).stop

    config = json.loads((checkpoint / "config.json").read_text())
    silent = {**config, "text_config": {**config["text_config"], "eos_token_id": None}}
    own = config["text_config"]["eos_token_id"]
    assert stop() == {own}
    assert stop(generation_config_json='{"eos_token_id": [3, 7]}') == {3, 7}
    assert stop(generation_config_json='{"eos_token_id": 3}') == {3}
    assert stop(generation_config_json=None) == {own}
    assert stop(generation_config_json=None, config_json=json.dumps(silent)) == {own}
