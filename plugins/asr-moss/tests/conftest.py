"""A small checkpoint with random weights, made and saved by transformers' own classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    GenerationConfig,
    MossTranscribeDiarizeConfig,
    MossTranscribeDiarizeFeatureExtractor,
    MossTranscribeDiarizeForConditionalGeneration,
    MossTranscribeDiarizeProcessor,
    Qwen2Tokenizer,
)

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.testing.tokenizer import train_tokenizer
from asr_core.types import Samples
from asr_moss.frontend import Frontend

torch.set_num_threads(1)  # faster for models as small as these

LIBRIVOX = Path(__file__).parents[3] / "tests" / "data" / "librivox"
RATE = 16_000
CONTEXT = 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>")
ADDED = ("<think>", "</think>")

DIALOGUE = "[0.12][S01]The quick brown fox.[1.88][2.50][S02]Nobody heard <it> & left.[4.75][4.75][S01]看[笑]到了[5.90]"
QUESTION = "What is it about?"
ANSWER = "It is about [1] a fox [and] a dog."

TEMPLATE = """{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- set found = namespace(text='', keywords=[]) -%}
{%- for item in message.content -%}
{%- if item.type == 'audio' -%}{{ '<|audio_start|><|audio_pad|><|audio_end|>\\n' }}
{%- elif item.type == 'text' -%}{%- set found.text = item.text -%}
{%- elif item.type == 'keywords' -%}{%- set found.keywords = item.keywords -%}
{%- endif -%}
{%- endfor -%}
{%- if found.keywords -%}{{ '热词列表 [' + found.keywords | join(', ') + ']\\n\\n' }}{%- endif -%}
{{ found.text if found.text else '请将音频转写为文本 [S01] [S02]' }}
{{- '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
"""In the spirit of the published one: a prompt takes the place of the instruction, keywords come before it."""


def make_processor(window_s: int = 30) -> Any:
    """With encoder windows of so many seconds."""
    with TemporaryDirectory() as path:
        Qwen2Tokenizer(tokenizer_object=train_tokenizer(SPECIAL, ADDED), eos_token=SPECIAL[2]).save_pretrained(path)
        # Opening is what gives it Qwen's way to cut words.
        tokenizer = Qwen2Tokenizer.from_pretrained(path)
    extractor = MossTranscribeDiarizeFeatureExtractor(chunk_length=window_s)
    return MossTranscribeDiarizeProcessor(extractor, tokenizer, chat_template=TEMPLATE)


def make_model(processor: Any, noise: float, context: int = CONTEXT) -> Any:
    """Random weights of standard deviation ``noise``, always the same ones."""
    wide = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "initializer_range": noise}
    text = {"vocab_size": len(processor.tokenizer) + 3, "max_position_embeddings": context}  # larger, as published
    # A short wavelength tells positions apart, so that greedy outputs do not settle on one token.
    rotary = {"rope_parameters": {"rope_type": "default", "rope_theta": 30.0}, "head_dim": 8, "num_key_value_heads": 2}
    window = processor.feature_extractor.n_samples
    torch.manual_seed(2)
    model = MossTranscribeDiarizeForConditionalGeneration(
        MossTranscribeDiarizeConfig(
            audio_config={**wide, "num_hidden_layers": 2, "max_source_positions": window // 320},
            text_config={"model_type": "qwen3", **wide, **text, **rotary, "num_hidden_layers": 3},
            audio_token_id=processor.audio_token_id,
            audio_chunk_size=window,
            initializer_range=noise,
        )
    )
    model.generation_config = GenerationConfig(eos_token_id=ends(processor), pad_token_id=0, do_sample=False)
    return model


def ends(processor: Any) -> list[int]:
    """The proper ends and, as random weights seldom come to one, some tokens of text."""
    return [*processor.tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]), *range(7, 440, 8)]


def save(path: Path, processor: Any, model: Any, shard: str = "1GB") -> Path:
    """A whole checkpoint in ``path``."""
    model.save_pretrained(path, max_shard_size=shard)
    processor.save_pretrained(path)
    return path


def encode(processor: Any, samples: Samples, **request: Any) -> Any:
    """Ids and features as transformers prepares them."""
    return processor.apply_transcription_request(
        samples, processor_kwargs={"sampling_rate": RATE, "return_tensors": "pt"}, **request
    )


def teach(processor: Any, model: Any, lessons: Sequence[tuple[Samples, dict[str, Any], str]]) -> None:
    """Train the language model until it says each text, and nothing else, to its audio and request."""
    model.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    model.model.audio_tower.requires_grad_(False)
    model.model.multi_modal_projector.requires_grad_(False)
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
    prepared = [_lesson(processor, *lesson) for lesson in lessons]
    for _ in range(300):
        losses = torch.cat([_losses(model, *lesson) for lesson in prepared])
        if losses.max() < 0.05:
            return
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    raise AssertionError("nothing was learned")


def _lesson(processor: Any, samples: Samples, request: dict[str, Any], text: str) -> tuple[Any, torch.Tensor]:
    inputs = encode(processor, samples, **request)
    said = torch.tensor([[*processor.tokenizer.encode(text), processor.tokenizer.eos_token_id]])
    ids = torch.cat([inputs["input_ids"], said], dim=1)
    return {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}, said[0]


def _losses(model: Any, inputs: Any, said: torch.Tensor) -> torch.Tensor:
    """How unlikely each token of the text is to the model, having read what comes before it."""
    logits = model(**inputs).logits[0, -len(said) - 1 : -1]
    return torch.nn.functional.cross_entropy(logits, said, reduction="none")


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    processor = make_processor()
    return save(tmp_path_factory.mktemp("moss") / "tiny", processor, make_model(processor, noise=0.3))


@pytest.fixture(scope="session")
def tiny(directory: Path) -> Iterator[Transcriber]:
    with load(str(directory), device="cpu", dtype="float32") as transcriber:
        yield transcriber


@pytest.fixture(scope="session")
def frontend(tiny: Transcriber) -> Frontend:
    frontend: Frontend = tiny.served.model.frontend
    return frontend


@pytest.fixture(scope="session")
def processor(directory: Path) -> Any:
    """Transformers' own, opened beside ours."""
    return MossTranscribeDiarizeProcessor.from_pretrained(directory, local_files_only=True)


@pytest.fixture(scope="session")
def reference(directory: Path) -> Any:
    """Transformers' own model of the same weights."""
    return MossTranscribeDiarizeForConditionalGeneration.from_pretrained(directory, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def reading() -> Samples:
    """Five clips of people reading, in a row: 24.7 s."""
    return np.concatenate([audio.load(path, RATE).samples for path in sorted(LIBRIVOX.glob("*.wav"))])


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory, reading: Samples) -> Iterator[Transcriber]:
    """A model with windows of 4 s that has learned what two people say, and an answer without any grammar."""
    processor = make_processor(window_s=4)
    model = make_model(processor, noise=0.02)
    teach(processor, model, [(reading[: 6 * RATE], {}, DIALOGUE), (reading[: 6 * RATE], {"prompt": QUESTION}, ANSWER)])
    path = save(tmp_path_factory.mktemp("moss") / "taught", processor, model)
    with load(str(path), device="cpu", dtype="float32") as transcriber:
        yield transcriber
