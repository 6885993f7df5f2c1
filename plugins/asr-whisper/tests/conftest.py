"""The real base model, opened once, and transformers' and OpenAI's own code on the same weights."""

from __future__ import annotations

import importlib.metadata
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
from whisper.model import ModelDimensions, Whisper
from whisper.normalizers import EnglishTextNormalizer

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.types import Samples
from asr_whisper import review
from asr_whisper.frontend import Frontend
from asr_whisper.openai_pt import _rename
from asr_whisper.weights import open_module
from asr_whisper.window import Window

LIBRIVOX = Path(__file__).parents[3] / "tests" / "data" / "librivox"
MULTILINGUAL = importlib.metadata.distribution("pytest-audioeval").locate_file("pytest_audioeval/samples/audio")


BASE = ModelDimensions(
    n_mels=80,
    n_audio_ctx=1500,
    n_audio_state=512,
    n_audio_head=8,
    n_audio_layer=6,
    n_vocab=51865,
    n_text_ctx=448,
    n_text_state=512,
    n_text_head=8,
    n_text_layer=6,
)


@pytest.fixture(scope="session")
def base() -> Iterator[Transcriber]:
    with load("whisper-base", device="cpu", dtype="float32") as transcriber:
        yield transcriber


@pytest.fixture
def windows() -> Iterator[Transcriber]:
    """In whole windows, as OpenAI's package hears."""
    with load("whisper-base", device="cpu", dtype="float32", chunk={"target_s": 30.0}) as transcriber:
        yield transcriber


@pytest.fixture(scope="session")
def frontend(base: Transcriber) -> Frontend:
    frontend: Frontend = base.served.model.frontend
    return frontend


@pytest.fixture(scope="session")
def librivox() -> dict[Path, str]:
    lines = (LIBRIVOX / "transcripts.txt").read_text().splitlines()
    return {LIBRIVOX / f"{line.split()[0]}.wav": " ".join(line.split()[1:]) for line in lines}


@pytest.fixture(scope="session")
def reading(librivox: dict[Path, str]) -> Samples:
    """All five clips in a row: 24.7 s."""
    return np.concatenate([audio.load(path, 16_000).samples for path in librivox])


@pytest.fixture(scope="session")
def normalise() -> Callable[[str], str]:
    """OpenAI's own idea of which spellings are one word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its word list open
        normaliser: Callable[[str], str] = EnglishTextNormalizer()
    return normaliser


@pytest.fixture(scope="session")
def transformers_base(base: Transcriber, frontend: Frontend) -> WhisperForConditionalGeneration:
    """The same weights with the generation settings that the hub's copy carries."""
    module = open_module(base.served.model.checkpoint, "float32", "cpu")
    special = frontend.special
    module.generation_config = GenerationConfig(
        is_multilingual=True,
        lang_to_id={f"<|{code}|>": token for code, token in special.languages.items()},
        task_to_id={"transcribe": special.transcribe, "translate": special.translate},
        no_timestamps_token_id=special.no_timestamps,
        prev_sot_token_id=special.previous,
        decoder_start_token_id=special.sot,
        bos_token_id=special.eot,
        eos_token_id=special.eot,
        pad_token_id=special.eot,
        suppress_tokens=list(frontend.suppression.always),
        begin_suppress_tokens=list(frontend.suppression.at_begin),
        max_initial_timestamp_index=50,
        max_length=448,
    )
    return module


@pytest.fixture(scope="session")
def openai_base(transformers_base: WhisperForConditionalGeneration, frontend: Frontend) -> Whisper:
    """The weights under OpenAI's names, run by OpenAI's code, which aligns by the same heads."""
    state = transformers_base.state_dict()
    model = Whisper(BASE)
    heads = torch.zeros(BASE.n_text_layer, BASE.n_text_head, dtype=torch.bool)
    for layer, head in frontend.config.alignment_heads:
        heads[layer, head] = True
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    model.load_state_dict({name: state[_rename(name)] for name in model.state_dict()})
    return model.eval()


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first answer however unsure, heard in all of the window, as generate does."""
    monkeypatch.setattr(Window, "of_frames", lambda frames, context: Window(context, 0))
    monkeypatch.setattr(review, "MIN_MEAN_LOGPROB", -math.inf)
    monkeypatch.setattr(review, "MAX_COMPRESSION_RATIO", math.inf)


def features(frontend: Frontend, samples: Samples) -> torch.Tensor:
    """Log-mel as the stock extractor gives it."""
    extracted = WhisperFeatureExtractor(feature_size=frontend.config.dims.mels)(
        samples, sampling_rate=16_000, return_tensors="pt"
    )
    return extracted.input_features
