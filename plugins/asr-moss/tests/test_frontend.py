"""Prompts and features against transformers' own processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MossTranscribeDiarizeProcessor

from asr_core import audio
from asr_core.api import Transcriber
from asr_core.errors import AudioTooLongError, CheckpointError, InvalidRequestError
from asr_core.types import AudioSlice, Clip, PreparedClip, Samples, Sampling, TranscriptionRequest
from asr_moss.config import MossConfig
from asr_moss.frontend import Frontend, extract_features, plan_blocks, prepare_clip, prepare_frontend
from asr_moss.names import find

from .conftest import ADDED, CONTEXT, RATE, SPECIAL, encode, make_model, make_processor, save

REQUESTS = [
    {},
    {"prompt": "Who speaks, and when? 谁在说话"},
    {"prompt": " leading and trailing \n"},
    {"keywords": ["fox"]},
    {"keywords": ["lazy dog", "Ünïcode 狐狸", "fox"]},
    {"prompt": "Only [S01], please.", "keywords": ["dog", "[S02]"]},
]


def noise(samples: int) -> Samples:
    return np.random.default_rng(samples).uniform(-0.3, 0.3, samples).astype(np.float32)


def clip_of(samples: Samples) -> Clip:
    return audio.from_array(samples, RATE, RATE).clip()


def flat(prepared: PreparedClip, frontend: Frontend) -> list[int]:
    """The prompt with a placeholder for every row."""
    ids: list[int] = []
    for part in prepared.prompt:
        ids += [frontend.config.audio_token] * part.count if isinstance(part, AudioSlice) else part
    return ids


@pytest.fixture(scope="module")
def short_windows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Frontend, Any]:
    """A frontend with windows of 4 s, and transformers' processor for it."""
    processor = make_processor(window_s=4)
    path = save(tmp_path_factory.mktemp("moss") / "short", processor, make_model(processor, noise=0.3))
    found = find(str(path))
    assert found is not None
    return prepare_frontend(found.config), processor


# Prompts


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize("seconds", [0.01, 1.99, 2.0, 7.3, 30.0, 30.01, 65.5])
def test_prompts_are_those_of_the_processor(
    frontend: Frontend, processor: Any, request_: dict[str, Any], seconds: float
) -> None:
    samples = noise(round(seconds * RATE))
    request = TranscriptionRequest(prompt=request_.get("prompt"), keywords=tuple(request_.get("keywords", ())))
    prepared = prepare_clip(frontend, clip_of(samples), request)
    assert flat(prepared, frontend) == encode(processor, samples, **request_).input_ids[0].tolist()


@pytest.mark.parametrize("blank", [{"prompt": ""}, {"prompt": " \n"}, {"keywords": ("", "  ")}])
def test_blank_text_is_none(frontend: Frontend, blank: dict[str, Any]) -> None:
    clip = clip_of(noise(RATE))
    asked = prepare_clip(frontend, clip, TranscriptionRequest(**blank))
    assert asked == prepare_clip(frontend, clip, TranscriptionRequest())


def test_markers_stand_every_two_seconds(frontend: Frontend, processor: Any) -> None:
    """As the processor's documentation says: the second is written behind its last row."""
    prepared = prepare_clip(frontend, clip_of(noise(5 * RATE)), TranscriptionRequest())
    slices = [part for part in prepared.prompt if isinstance(part, AudioSlice)]
    assert slices == [AudioSlice(0, 0, 25), AudioSlice(0, 25, 25), AudioSlice(0, 50, 13)]
    between = [prepared.prompt[n] for n in (2, 4)]
    assert [processor.tokenizer.decode(ids) for ids in between] == ["2", "4"]


def test_rows_are_cut_where_a_block_ends(frontend: Frontend) -> None:
    prepared = prepare_clip(frontend, clip_of(noise(31 * RATE)), TranscriptionRequest())
    slices = [part for part in prepared.prompt if isinstance(part, AudioSlice)]
    assert [(span.start_sample, span.end_sample, span.tokens) for span in prepared.spans] == [
        (0, 480_000, 375),
        (480_000, 496_000, 13),
    ]
    assert slices[-2:] == [AudioSlice(0, 350, 25), AudioSlice(1, 0, 13)]


# Counts


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.integers(1, 2000), st.integers(1, 3 * 480_000), st.sampled_from([480_000, 480_001, 479_999])))
def test_as_many_rows_as_the_processor_counts(samples: int) -> None:
    """From lengths alone; its own counting is fed the mask that its extractor makes of such a length."""
    processor = COUNTER
    lengths = [min(480_000, samples - start) for start in range(0, samples, 480_000)]
    frames = torch.tensor([len(range(0, length, 160)) for length in lengths])
    expected = processor._get_audio_token_length(frames, torch.zeros(len(lengths), dtype=torch.long))
    assert sum(span.tokens for span in plan_blocks(PUBLISHED, samples)) == int(expected[0])


@settings(deadline=None, max_examples=60)
@given(st.one_of(st.integers(2, 3000), st.integers(2, 13 * RATE)))
def test_as_many_rows_as_the_processor_puts_in(short_windows: tuple[Frontend, Any], samples: int) -> None:
    """Really processed, over up to four blocks; it cannot take a single sample."""
    frontend, processor = short_windows
    ids = encode(processor, np.full(samples, 0.1, np.float32)).input_ids[0].tolist()
    prepared = prepare_clip(frontend, clip_of(np.full(samples, 0.1, np.float32)), TranscriptionRequest())
    assert flat(prepared, frontend) == ids


PUBLISHED = MossConfig.of({})
COUNTER = make_processor()


# Features


@pytest.mark.parametrize("seconds", [0.001, 0.025, 3.9995, 4.0, 9.1])
def test_features_are_those_of_the_processor(short_windows: tuple[Frontend, Any], seconds: float) -> None:
    frontend, processor = short_windows
    samples = noise(round(seconds * RATE))
    samples[: len(samples) // 3] *= 1e-4  # quiet enough to be clamped in its own block only
    theirs = encode(processor, samples)
    clip = clip_of(samples)
    ours = extract_features(frontend, clip, plan_blocks(frontend.config, len(samples)))
    assert [feature.length for feature in ours] == theirs.input_features_mask.sum(-1).tolist()
    for feature, expected in zip(ours, theirs.input_features.numpy(), strict=True):
        np.testing.assert_allclose(feature.data, expected, atol=1e-6)


def test_a_single_sample_is_heard_as_before_silence(frontend: Frontend, processor: Any) -> None:
    clip = clip_of(np.array([0.5], np.float32))
    prepared = prepare_clip(frontend, clip, TranscriptionRequest())
    (feature,) = extract_features(frontend, clip, prepared.spans)
    theirs = encode(processor, np.array([0.5, 0.0], np.float32))
    np.testing.assert_array_equal(feature.data, theirs.input_features[0].numpy())
    assert (feature.length, prepared.spans[0].tokens) == (1, 1)


def test_a_clip_within_a_recording_is_heard_alone(frontend: Frontend) -> None:
    samples = noise(3 * RATE)
    inside = audio.from_array(samples, RATE, RATE).clip(RATE, 2 * RATE)
    alone = clip_of(samples[RATE : 2 * RATE])
    ours, theirs = (extract_features(frontend, clip, plan_blocks(frontend.config, RATE)) for clip in (inside, alone))
    np.testing.assert_array_equal(ours[0].data, theirs[0].data)


# Budget, sampling, stop


@pytest.mark.parametrize(("seconds", "budget"), [(0.5, 512), (51.2, 512), (51.25, 513), (100.0, 1000)])
def test_the_budget_grows_with_the_audio(frontend: Frontend, seconds: float, budget: int) -> None:
    prepared = prepare_clip(frontend, clip_of(noise(round(seconds * RATE))), TranscriptionRequest())
    assert prepared.budget == budget


def test_no_audio_has_no_spans(frontend: Frontend) -> None:
    prepared = prepare_clip(frontend, clip_of(noise(RATE)).waveform.clip(0, 0), TranscriptionRequest())
    assert (prepared.spans, prepared.budget) == ((), 128)


def test_the_budget_ends_with_the_context(frontend: Frontend) -> None:
    prepared = prepare_clip(frontend, clip_of(noise(260 * RATE)), TranscriptionRequest())
    assert prepared.budget == CONTEXT - len(flat(prepared, frontend)) < 2600


@pytest.mark.parametrize(
    ("temperature", "sampling"),
    [(None, Sampling()), (0.0, Sampling()), (0.7, Sampling(0.7, top_p=0.95, top_k=50))],
)
def test_only_the_caller_turns_sampling_on(frontend: Frontend, temperature: float | None, sampling: Sampling) -> None:
    prepared = prepare_clip(frontend, clip_of(noise(RATE)), TranscriptionRequest(temperature=temperature))
    assert prepared.sampling == sampling


# Too much for the context


def test_the_last_token_of_the_context_is_used(frontend: Frontend) -> None:
    clip = clip_of(noise(RATE))
    taken = len(flat(prepare_clip(frontend, clip, TranscriptionRequest()), frontend))
    roomy, full = (evolve(frontend, config=evolve(frontend.config, context=taken + more)) for more in (1, 0))
    assert prepare_clip(roomy, clip, TranscriptionRequest()).budget == 1
    with pytest.raises(AudioTooLongError):
        prepare_clip(full, clip, TranscriptionRequest())


def test_audio_beyond_the_context_is_refused_before_any_feature(frontend: Frontend) -> None:
    with pytest.raises(AudioTooLongError, match=r"330\.00 s") as raised:
        prepare_clip(frontend, clip_of(noise(330 * RATE)), TranscriptionRequest(prompt="x"))
    assert (raised.value.layer, raised.value.param) == ("native_limit", "file")


@pytest.mark.parametrize(
    ("param", "request_"),
    [
        ("prompt", TranscriptionRequest(prompt="@ " * CONTEXT)),
        ("keywords", TranscriptionRequest(keywords=("@ ",) * CONTEXT)),
        ("keywords", TranscriptionRequest(prompt="Who?", keywords=("@ ",) * CONTEXT)),
    ],
)
def test_text_beyond_the_context_is_its_callers_fault(
    frontend: Frontend, param: str, request_: TranscriptionRequest
) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        prepare_clip(frontend, clip_of(noise(RATE)), request_)
    assert (raised.value.param, raised.value.layer) == (param, "frontend")
    assert not isinstance(raised.value, AudioTooLongError)


# Callers' words


@pytest.mark.parametrize("text", [*SPECIAL, *ADDED, "\ue0000\ue001", "<|audio_pad|>" * 3 + "<|im_end|>"])
def test_callers_words_steer_nothing(frontend: Frontend, text: str) -> None:
    clip = clip_of(noise(3 * RATE))
    for asked, harmless in (
        (TranscriptionRequest(prompt=f"a {text} b"), TranscriptionRequest(prompt="a x b")),
        (TranscriptionRequest(keywords=("a", text)), TranscriptionRequest(keywords=("a", "x"))),
    ):
        ours, plain = (prepare_clip(frontend, clip, request) for request in (asked, harmless))
        added = set(frontend.prompts.special.values())
        kept = [[token for token in flat(one, frontend) if token in added] for one in (ours, plain)]
        assert kept[0] == kept[1]
        assert text in frontend.tokenizer.decode(flat(ours, frontend), skip_special_tokens=False)


@pytest.mark.parametrize("text", [*SPECIAL, *ADDED])
def test_callers_words_are_words_to_the_model(tiny: Transcriber, text: str) -> None:
    heard = tiny.transcribe(noise(3 * RATE), prompt=f"a {text}", keywords=[text, f"x{text}{text}"])
    assert heard.usage.audio_tokens == 38
    assert heard.usage.text_tokens > tiny.transcribe(noise(3 * RATE)).usage.text_tokens + len(text) // 2


# What does not go together


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    for file in directory.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


def opened(path: Path) -> Frontend:
    found = find(str(path))
    assert found is not None
    return prepare_frontend(found.config)


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.unlink()
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("config.json", '"audio_chunk_size": 480000', '"audio_chunk_size": 960000', "samples of a block"),
        ("config.json", '"audio_merge_size": 4', '"audio_merge_size": 2', "positions per row"),
        ("config.json", '"num_mel_bins": 80', '"num_mel_bins": 128', "mel bins"),
        ("config.json", '"audio_token_id": 460', '"audio_token_id": 461', "audio token"),
        ("config.json", '"audio_merge_size": 4', '"audio_merge_size": 7', "do not divide"),
        ("config.json", '"audio_chunk_size": 480000', '"audio_chunk_size": "30 s"', "block is '30 s'"),
        ("processor_config.json", '"chunk_length": 30', '"chunk_length": 10', "samples of a block"),
        ("processor_config.json", '"sampling_rate": 16000', '"sampling_rate": 16001', "samples of a block"),
        ("processor_config.json", '"hop_length": 160', '"hop_length": 320', "samples of a frame"),
        ("processor_config.json", '"audio_tokens_per_second": 12.5', '"audio_tokens_per_second": 5', "rows per second"),
        ("chat_template.jinja", "<|audio_pad|>", "", "no place for one audio"),
        ("chat_template.jinja", "found.text if found.text else", "", "no place for one audio and a prompt"),
        ("chat_template.jinja", "endfor", "endfr", "cannot be used"),
        ("tokenizer.json", '"version"', '"version', "cannot be used"),
        ("generation_config.json", '"eos_token_id": [', '"eos_token_id": ["",', "eos_token_id"),
    ],
)
def test_files_that_disagree_are_refused(copy: Path, file: str, old: str, new: str, reason: str) -> None:
    rewrite(copy / file, old, new)
    with pytest.raises(CheckpointError, match=reason):
        opened(copy)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("processor_config.json", '"time_marker_every_seconds": 2', '"time_marker_every_seconds": 5'),
        ("processor_config.json", '"time_marker_every_seconds": 2', '"time_marker_every_seconds": 0'),
        # published later than the one in the fixture: the instruction stays, the prompt comes before it
        ("chat_template.jinja", "{{ found.text if found.text else", "{{ found.text + '\\n\\n' +"),
    ],
)
def test_the_checkpoints_processor_decides(copy: Path, file: str, old: str, new: str) -> None:
    rewrite(copy / file, old, new)
    processor, samples = MossTranscribeDiarizeProcessor.from_pretrained(copy), noise(33 * RATE)
    request = {"prompt": "Wer spricht?", "keywords": ["Fuchs", "Hund"]}
    prepared = prepare_clip(opened(copy), clip_of(samples), TranscriptionRequest(**request))
    assert flat(prepared, opened(copy)) == encode(processor, samples, **request).input_ids[0].tolist()


@pytest.mark.parametrize("file", ["tokenizer.json", "chat_template.jinja", "processor_config.json"])
def test_a_missing_file_is_refused(copy: Path, file: str) -> None:
    (copy / file).unlink()
    with pytest.raises(CheckpointError):
        opened(copy)


def test_without_generation_settings_the_tokenizer_says_when_to_stop(copy: Path, frontend: Frontend) -> None:
    (copy / "generation_config.json").unlink()
    assert opened(copy).stop == {frontend.prompts.special["<|im_end|>"]}


def test_the_window_of_the_extractor_is_no_limit(directory: Path) -> None:
    """Blocks follow it; what a request may last does not."""
    config = MossConfig.of({})
    for seconds in (10, 300):
        other = evolve(config, block=seconds * RATE, positions=50 * seconds)
        spans = plan_blocks(other, 600 * RATE)
        assert len(spans) == 600 // seconds
        assert sum(span.tokens for span in spans) == 7500
