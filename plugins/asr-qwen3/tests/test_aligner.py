"""Words timed by a small random aligner: as transformers has it, with nothing of the text lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3ASRForTokenClassification, Qwen3ASRProcessor

from asr_core import audio
from asr_core.api import load
from asr_core.errors import AudioTooLongError, CheckpointError, UnsupportedValueError
from asr_core.plugins import Plugins
from asr_core.testing.tokenizer import train_tokenizer
from asr_core.types import Clip, Samples, UploadLimits, Waveform, Word
from asr_qwen3.aligner import DIRECTORY, SPLITTERS, ForcedAligner, open_aligner, surfaces, with_length

from . import tiny

TEXT = 'He said, "it\'s 3.5 — well-known!" … Mr. <timestamp>, 你好。'
WORDS = ["He", "said", "it's", "35", "wellknown", "Mr", "timestamp", "你", "好"]
SURFACES = ["He", "said,", "\"it's", "3.5 —", 'well-known!" …', "Mr.", "<timestamp>,", "你", "好。"]
CLASSES = 38
"""Of 80 ms: 3.04 s, a little more than the clip has."""

SEED = 18
"""One of few at which random weights give the words many times."""

TEMPLATE = """
{%- for message in messages -%}
  {%- for part in message.content -%}
    {%- if part.type == 'audio' -%}
      {{- '<|audio_start|><|audio_pad|><|audio_end|>' -}}
    {%- else -%}
      {{- part.text + '<timestamp><timestamp>' -}}
    {%- endif -%}
  {%- endfor -%}
{%- endfor -%}
"""


def save(directory: Path, *added: str, seed: int = SEED) -> Path:
    processor = tiny.processor(train_tokenizer(tiny.SPECIAL, (*tiny.ADDED, "<timestamp>", *added)))
    processor.chat_template = TEMPLATE
    config = tiny.config(processor)
    config.timestamp_token_id = processor.tokenizer.convert_tokens_to_ids("<timestamp>")
    config.num_labels = CLASSES
    torch.manual_seed(seed)
    processor.save_pretrained(directory)
    module = Qwen3ASRForTokenClassification(config)
    with torch.no_grad():  # as in tiny.save, else all words have one time
        module.model.language_model.embed_tokens.weight.mul_(0.3)
        for layer in module.model.language_model.layers:
            layer.self_attn.q_norm.weight.fill_(4.0)
    module.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("aligner"))


@pytest.fixture
def chosen(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY, str(saved))
    return saved


@pytest.fixture
def aligner(chosen: Path) -> ForcedAligner:
    return open_aligner("cpu", "float32")


@pytest.fixture
def clip(speech: Samples) -> Clip:
    return Waveform(speech, 16_000, b"").clip()


def of_transformers(directory: Path, samples: Samples, text: str, language: str | None) -> list[dict[str, Any]]:
    processor = Qwen3ASRProcessor.from_pretrained(directory, local_files_only=True)
    module = Qwen3ASRForTokenClassification.from_pretrained(directory, dtype=torch.float32).eval()
    inputs, words = processor.prepare_forced_aligner_inputs(
        samples, text, language, processor_kwargs={"sampling_rate": 16_000}
    )
    with torch.inference_mode():
        logits = module(**inputs).logits
    (timed,) = processor.decode_forced_alignment(logits, inputs["input_ids"], words, module.config.timestamp_token_id)
    return list(timed)


def test_times_are_those_of_transformers(saved: Path, aligner: ForcedAligner, clip: Clip) -> None:
    expected = of_transformers(saved, clip.samples, TEXT, "en")
    assert [one["text"] for one in expected] == WORDS
    words = aligner.align(clip, TEXT, "en")
    assert [word.text for word in words] == SURFACES
    times = [(round(1000 * one["start_time"]), round(1000 * one["end_time"])) for one in expected]
    assert len({bound for time in times for bound in time}) > 5
    said = [(ours, theirs) for ours, theirs in zip(words, times, strict=True) if theirs[0] < theirs[1]]
    assert len(said) > 2
    assert all((word.start_ms, word.end_ms) == time for word, time in said)


def test_times_are_whole_milliseconds_in_order_and_in_the_clip(aligner: ForcedAligner, clip: Clip) -> None:
    words = aligner.align(clip, TEXT, "en")
    bounds = [bound for word in words for bound in (word.start_ms, word.end_ms)]
    assert bounds == sorted(bounds)
    assert all(type(bound) is int and 0 <= bound <= round(1000 * clip.duration) for bound in bounds)


def test_a_text_cannot_spell_special_tokens(aligner: ForcedAligner, clip: Clip) -> None:
    words = aligner.align(clip, "a <timestamp><|audio_pad|> <|im_end|>", None)
    assert [word.text for word in words] == ["a", "<timestamp><|audio_pad|>", "<|im_end|>"]


@pytest.mark.parametrize("token", ["hello", "don't", "über"])
def test_an_aligner_whose_special_tokens_are_words_is_refused(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY, str(save(tmp_path, token)))
    with pytest.raises(CheckpointError, match=f"words may become the special tokens {token}$"):
        open_aligner("cpu", "float32")


def test_punctuation_alone_is_one_word(aligner: ForcedAligner, clip: Clip) -> None:
    assert aligner.align(clip, "… !", "en") == [Word(0, round(1000 * clip.duration), "… !")]


def test_other_rates_are_resampled(aligner: ForcedAligner, clip: Clip) -> None:
    half = audio.from_array(clip.samples, 16_000, 8_000, UploadLimits())
    words = aligner.align(half.clip(), TEXT, "en")
    assert [word.text for word in words] == SURFACES
    very_short = Waveform(np.ones(80, np.float32), 8_000, b"").clip()
    assert [(word.start_ms, word.end_ms) for word in aligner.align(very_short, "ah", "en")] == [(0, 10)]


def test_a_clip_longer_than_the_times_it_knows_is_refused(aligner: ForcedAligner) -> None:
    long = Waveform(np.ones(3_050 * 16, np.float32), 16_000, b"").clip()
    with pytest.raises(
        AudioTooLongError, match=r"words of 3\.05 s at once cannot be timed, 3\.04 s are the most"
    ) as raised:
        aligner.align(long, "a b", "en")
    assert raised.value.layer == "aligner"


@pytest.mark.parametrize("language", ["nl", "ar", "xx", "English"])
def test_languages_it_was_not_trained_on_are_refused(aligner: ForcedAligner, clip: Clip, language: str) -> None:
    known = "de, en, es, fr, it, ja, ko, pt, ru, yue, zh"
    with pytest.raises(
        UnsupportedValueError, match=f"language '{language}' cannot be timed .* only of {known}"
    ) as raised:
        aligner.align(clip, "a b", language)
    assert raised.value.param == "timestamp_granularities"


@pytest.mark.parametrize(("language", "package"), [("ja", "nagisa"), ("ko", "soynlp")])
def test_a_splitter_that_is_not_installed_is_named(
    aligner: ForcedAligner, clip: Clip, language: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SPLITTERS, language, (package, lambda: False))
    with pytest.raises(UnsupportedValueError, match=f"once `pip install {package}` was run"):
        aligner.align(clip, "a b", language)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("one", ["one"], ["one"]),
        ("¿Qué? ¡No!", ["Qué", "No"], ["¿Qué?", "¡No!"]),
        ("“don\u2019t”", ["dont"], ["“don\u2019t”"]),
        ("说\uff0c“你好。”", ["说", "你", "好"], ["说\uff0c“", "你", "好。”"]),
        ("a\n- b", ["a", "b"], ["a\n-", "b"]),
        ("\uff11\uff10年", ["10", "年"], ["\uff11\uff10", "年"]),
    ],
    ids=["one", "around", "inside", "no spaces", "lines", "written its own way"],
)
def test_no_character_is_lost(text: str, words: list[str], expected: list[str]) -> None:
    assert surfaces(text, words) == expected
    assert "".join("".join(expected).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(0, 80), (80, 240)], [(0, 80), (80, 240)]),
        ([(80, 80), (400, 480)], [(80, 160), (400, 480)]),
        ([(80, 80), (100, 480)], [(80, 100), (100, 480)]),
        ([(0, 80), (160, 160), (160, 240)], [(0, 80), (80, 160), (160, 240)]),
        ([(160, 160), (160, 160)], [(80, 160), (160, 240)]),
        ([(480, 480)], [(480, 500)]),
        ([(0, 80), (640, 720)], [(0, 80), (420, 500)]),
        ([(0, 80), (80, 80), (80, 160)], [(0, 80), (80, 80), (80, 160)]),
    ],
    ids=["as they are", "a step", "up to the next", "before", "two", "the last", "behind the end", "no room"],
)
def test_words_get_some_length_where_there_is_room(times: Any, expected: Any) -> None:
    assert with_length(times, 500, 80) == expected


def test_other_checkpoints_are_refused(
    checkpoint: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(directory: Path) -> str:
        monkeypatch.setenv(DIRECTORY, str(directory))
        with pytest.raises(CheckpointError) as raised:
            open_aligner("cpu", "float32")
        return raised.value.message

    assert refused(checkpoint).endswith("lacks score.weight")
    assert "no config.json tells of a Qwen3-ForcedAligner" in refused(tmp_path / "nowhere")
    copy = Path(shutil.copytree(saved, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "timestamp_token_id": 7}))
    assert "does not have the model's token for times" in refused(copy)
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    assert "no config.json tells of a Qwen3-ForcedAligner" in refused(copy)
    shutil.copy(saved / "config.json", copy)
    (copy / "tokenizer.json").write_text("{}")
    assert "tokenizer or feature extractor cannot be read" in refused(copy)
    (copy / "model.safetensors").write_bytes(b"damaged")
    assert "cannot be loaded" in refused(copy)


def test_a_model_without_times_gets_words_by_name(checkpoint: Path, chosen: Path, speech: Samples) -> None:
    assert "qwen3-forced-aligner" in {name for record in Plugins.discover().records for name in record.aligners}
    options = {"device": "cpu", "dtype": "float32"}
    with load(str(checkpoint), aligner="qwen3-forced-aligner", **options) as transcriber:
        assert transcriber.served.capabilities.word_times
        assert transcriber.served.placement.endswith(", words timed by qwen3-forced-aligner")
        transcript = transcriber.transcribe(speech, language="en", times=["word"])
        plain = transcriber.transcribe(speech, language="en")
    assert transcript.text == plain.text
    assert plain.words == ()
    assert "".join("".join(word.text for word in transcript.words).split()) == "".join(transcript.text.split())
