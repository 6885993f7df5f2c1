"""A small random checkpoint saved the real way, opened by the plugin and by transformers."""

# ruff: noqa: RUF001 - Chinese has its own punctuation
from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import frozen
from hypothesis import settings
from transformers import (
    FunAsrNanoConfig,
    FunAsrNanoFeatureExtractor,
    FunAsrNanoForConditionalGeneration,
    FunAsrNanoProcessor,
    Qwen2Tokenizer,
)

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.checkpoints import Pretrained, read_json
from asr_core.testing.tokenizer import train_tokenizer
from asr_core.types import Samples
from asr_funasr.frontend import Frontend

LIBRIVOX = Path(__file__).parents[3] / "tests" / "data" / "librivox"
AUDIO = "<|object_ref_start|>"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", AUDIO, "<|object_ref_end|>")
ADDED = ("<think>", "</think>", "<tool_call>")

TEMPLATE = """\
<|im_start|>system
You are a helpful assistant.<|im_end|>
{% for message in messages -%}
<|im_start|>{{ message.role }}
{% for part in message.content if part.type == 'text' %}{{ part.text }}
{% endfor -%}
{% for part in message.content if part.type == 'keywords' %}热词列表：[{{ part.keywords | join(', ') }}]
{% endfor -%}
语音转写
{%- for part in message.content if part.type == 'language' %}成{{ part.language }}{% endfor -%}
ITN：
{%- for part in message.content if part.type == 'audio' %}<|object_ref_start|>{% endfor -%}
<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
ITN = "{% if itn is defined and not itn %}，不进行文本规整{% endif %}"
PUBLISHED = TEMPLATE.replace("ITN", "")
WITH_ITN = TEMPLATE.replace("ITN", ITN)
BARE = f"<|im_start|>user\n语音转写：{AUDIO}<|im_end|>\n<|im_start|>assistant\n"

Variant = Callable[..., Path]

unhurried = settings(deadline=None, max_examples=50)
"""Machines are busy; no test is about time."""


@frozen(eq=False)
class Reference:
    """transformers' own processor and model of the same checkpoint, in float32."""

    processor: FunAsrNanoProcessor
    model: FunAsrNanoForConditionalGeneration

    def inputs(self, samples: Samples, **request: Any) -> Any:
        return self.processor.apply_transcription_request(samples.copy(), **request)

    @torch.no_grad()
    def tokens(self, samples: Samples, budget: int, **request: Any) -> list[int]:
        """What generate adds to the prompt."""
        inputs = self.inputs(samples, **request)
        output = self.model.generate(**inputs, do_sample=False, max_new_tokens=budget)
        return output[0, inputs["input_ids"].shape[1] :].tolist()


def config(vocabulary: int, stop: int, audio_token: int) -> FunAsrNanoConfig:
    """Every part there is, each as small as it may be."""
    return FunAsrNanoConfig(
        audio_config={
            "model_type": "fun_asr_nano_encoder",
            "hidden_size": 32,
            "num_attention_heads": 2,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "num_timestamp_prediction_layers": 1,
        },
        adaptor_config={
            "hidden_size": 64,
            "num_attention_heads": 4,
            "intermediate_size": 16,
            "projector_hidden_size": 48,
        },
        text_config={
            "model_type": "qwen3",
            "vocab_size": vocabulary,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": True,
            "initializer_range": 0.4,
            "eos_token_id": stop,
        },
        audio_token_id=audio_token,
        initializer_range=0.4,
    )


def save(directory: Path, shard_size: str = "1GB") -> None:
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    tokenizer = Qwen2Tokenizer(tokenizer_object=train_tokenizer(SPECIAL, ADDED), **names)
    ids = tokenizer.get_vocab()
    torch.manual_seed(0)
    # As in the real one, there are more rows than tokens.
    model = FunAsrNanoForConditionalGeneration(config(len(tokenizer) + 9, ids["<|im_end|>"], ids[AUDIO]))
    model.save_pretrained(directory, max_shard_size=shard_size)
    FunAsrNanoProcessor(FunAsrNanoFeatureExtractor(), tokenizer, chat_template=PUBLISHED).save_pretrained(directory)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fun-asr")
    save(directory)
    return directory


@pytest.fixture(scope="session")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fun-asr-shards")
    save(directory, shard_size="100KB")
    assert len(list(directory.glob("model-*.safetensors"))) > 2
    return directory


@pytest.fixture
def variant(checkpoint: Path, tmp_path: Path) -> Variant:
    """A copy of the checkpoint with other small files; None deletes one."""

    def copy(**texts: str | None) -> Path:
        directory = tmp_path / f"variant-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(checkpoint, directory)
        for name, text in texts.items():
            path = directory / name.replace("_jinja", ".jinja").replace("_json", ".json")
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text, encoding="utf-8")
        return directory

    return copy


def pretrained(directory: Path) -> Pretrained:
    return Pretrained(read_json(directory / "config.json"), directory)


@pytest.fixture(scope="session")
def transcriber(checkpoint: Path) -> Iterator[Transcriber]:
    with load(str(checkpoint), device="cpu", dtype="float32") as transcriber:
        yield transcriber


@pytest.fixture(scope="session")
def frontend(transcriber: Transcriber) -> Frontend:
    frontend: Frontend = transcriber.served.model.frontend
    return frontend


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Reference:
    model = FunAsrNanoForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)
    return Reference(FunAsrNanoProcessor.from_pretrained(checkpoint), model.eval())


@pytest.fixture(scope="session")
def reading() -> Samples:
    """Five sentences in a row: 24.7 s."""
    return np.concatenate([audio.load(path, 16_000).samples for path in sorted(LIBRIVOX.glob("*.wav"))])


def tokens(transcriber: Transcriber, samples: Samples, **request: Any) -> Sequence[int]:
    """What the plugin's tokens are, the stop token left out."""
    return [token for one in transcriber.transcribe(samples, **request).segments for token in one.tokens]
