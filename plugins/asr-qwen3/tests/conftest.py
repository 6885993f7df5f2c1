"""The small checkpoint, opened once as a user would, and transformers' own code on the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3ASRForConditionalGeneration, Qwen3ASRProcessor

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.testing.tokenizer import train_tokenizer
from asr_core.types import Samples
from asr_qwen3.frontend import Frontend

from . import tiny

LIBRIVOX = Path(__file__).parents[3] / "tests" / "data" / "librivox"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("qwen3-asr")
    processor = tiny.processor(train_tokenizer(tiny.SPECIAL, tiny.ADDED))
    tiny.save(processor, tiny.config(processor), directory)
    return directory


@pytest.fixture(scope="session")
def model(checkpoint: Path) -> Iterator[Transcriber]:
    with load(str(checkpoint), device="cpu", dtype="float32") as transcriber:
        yield transcriber


@pytest.fixture(scope="session")
def frontend(model: Transcriber) -> Frontend:
    frontend: Frontend = model.served.model.frontend
    return frontend


@pytest.fixture(scope="session")
def processor(checkpoint: Path) -> Qwen3ASRProcessor:
    return Qwen3ASRProcessor.from_pretrained(checkpoint, local_files_only=True)


@pytest.fixture(scope="session")
def module(checkpoint: Path) -> Qwen3ASRForConditionalGeneration:
    module = Qwen3ASRForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32, local_files_only=True)
    return module.eval()


@pytest.fixture(scope="session")
def special(frontend: Frontend) -> dict[str, int]:
    """Every token that was added to the vocabulary."""
    return dict(frontend.template.tokenizer.special)


@pytest.fixture(scope="session")
def speech() -> Samples:
    return audio.load(LIBRIVOX / "0880.wav", 16_000).samples


@pytest.fixture(scope="session")
def reading() -> Samples:
    """All five clips in a row: 24.7 s."""
    return np.concatenate([audio.load(path, 16_000).samples for path in sorted(LIBRIVOX.glob("*.wav"))])
