"""Words all the way: a small model that learnt five clips by heart, served by a real process and asked over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3ASRForConditionalGeneration, Qwen3ASRProcessor

from asr_core import audio

from . import tiny
from .conftest import LIBRIVOX

MODEL = "qwen3-asr-0.6b"
"""The card of all checkpoints narrower than the large one."""

WORDS = dict(line.split(" ", 1) for line in (LIBRIVOX / "transcripts.txt").read_text().splitlines())
MARKER, END = "<asr_text>", "<|im_end|>"

EPOCHS, KNOWN = 150, 0.01
"""A quarter of them is enough for a loss per token at which no rounding changes a word."""


def word_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*WORDS.values(), "language English", "system user assistant"], trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in tiny.SPECIAL])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in tiny.ADDED])
    return tokenizer


def lesson(processor: Qwen3ASRProcessor, clip: str, words: str) -> dict[str, torch.Tensor]:
    """The prompt as it is asked, and everything the model is to say after it."""
    sound = audio.load(LIBRIVOX / f"{clip}.wav", 16_000).samples
    inputs = dict(processor.apply_transcription_request(sound, processor_kwargs={"sampling_rate": 16_000}))
    said = processor.tokenizer(f"language English{MARKER}{words}{END}", return_tensors="pt").input_ids
    prompt = inputs["input_ids"]
    inputs["input_ids"] = torch.cat([prompt, said], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["labels"] = torch.cat([torch.full_like(prompt, -100), said], dim=1)
    return inputs


def step(
    module: Qwen3ASRForConditionalGeneration, optimizer: torch.optim.Optimizer, one: dict[str, torch.Tensor]
) -> float:
    optimizer.zero_grad()
    loss = module(**one).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that knows the clips by heart."""
    processor = tiny.processor(word_tokenizer())
    torch.manual_seed(0)
    module = Qwen3ASRForConditionalGeneration(tiny.config(processor, window=800))
    lessons = [lesson(processor, clip, words) for clip, words in WORDS.items()]
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3)
    for _ in range(EPOCHS):
        if max(step(module, optimizer, one) for one in lessons) < KNOWN:
            break
    directory = tmp_path_factory.mktemp("learnt")
    module.save_pretrained(directory)
    processor.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def url(learnt: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this one model."""
    log = tmp_path_factory.mktemp("server") / "output.txt"
    command = [sys.executable, "-m", "asr_core.cli", "serve", "--model", str(learnt), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "ASR_CORE_PLUGINS_ALLOW": "asr-qwen3"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        yield address(process, log)
    finally:
        process.kill()
        process.wait()


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"serving on (http://\S+)", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"no server:\n{log.read_text()}")


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture(params=WORDS)
def clip(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def sound(clip: str) -> Path:
    return LIBRIVOX / f"{clip}.wav"


def post(url: str, clip: str, **fields: str) -> httpx.Response:
    with sound(clip).open("rb") as file:
        data = {"model": MODEL, **fields}
        return httpx.post(f"{url}/v1/audio/transcriptions", data=data, files={"file": file}, timeout=60)


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def test_words_are_heard_in_a_language_that_is_detected(client: openai.OpenAI, clip: str) -> None:
    answer = client.audio.transcriptions.create(model=MODEL, file=sound(clip))
    assert answer.text == WORDS[clip]


@pytest.mark.parametrize("language", ["en", "English", "en-GB"])
def test_words_are_heard_in_a_language_that_is_forced(client: openai.OpenAI, clip: str, language: str) -> None:
    answer = client.audio.transcriptions.create(model=MODEL, file=sound(clip), language=language)
    assert answer.text == WORDS[clip]


@pytest.mark.parametrize("language", [openai.omit, "en"])
def test_words_stream(client: openai.OpenAI, clip: str, language: str) -> None:
    with client.audio.transcriptions.create(model=MODEL, file=sound(clip), language=language, stream=True) as events:
        *deltas, done = events
    assert "".join(delta.delta for delta in deltas) == done.text == WORDS[clip]


def test_the_longest_clip_streams_in_more_than_one_piece(client: openai.OpenAI) -> None:
    longest = max(WORDS, key=lambda clip: len(WORDS[clip]))
    with client.audio.transcriptions.create(model=MODEL, file=sound(longest), stream=True) as events:
        *deltas, _ = events
    assert len(deltas) > 1


@pytest.mark.parametrize("language", [{}, {"language": "english"}])
def test_the_language_is_told(url: str, clip: str, language: dict[str, str]) -> None:
    answer = post(url, clip, **language)
    assert (answer.status_code, answer.json()["text"], answer.json()["languages"]) == (
        200,
        WORDS[clip],
        [{"code": "en"}],
    )


@pytest.mark.parametrize(
    ("field", "value"), [("language", "tlh"), ("keywords", "a"), ("temperature", "3"), ("itn", "true")]
)
def test_what_it_cannot_do_is_refused_with_the_field(url: str, field: str, value: str) -> None:
    answer = post(url, "0880", **{field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


@pytest.mark.parametrize("prompt", [*tiny.SPECIAL, *tiny.ADDED])
def test_special_tokens_in_a_prompt_do_no_harm(client: openai.OpenAI, prompt: str) -> None:
    """What the model makes of words it never saw is its own affair; nothing special comes out."""
    answer = client.audio.transcriptions.create(model=MODEL, file=sound("0880"), prompt=prompt * 3)
    assert not any(name in answer.text for name in (*tiny.SPECIAL, *tiny.ADDED))
    assert client.audio.transcriptions.create(model=MODEL, file=sound("0880")).text == WORDS["0880"]
