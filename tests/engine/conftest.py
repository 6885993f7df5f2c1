"""Tiny random modules of three architectures, and what they say alone without any cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from attrs import frozen
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from asr_core.engines.compute import Compute
from asr_core.engines.torch import CausalDecoder, CrossDecoder, Decoder, EngineLimits, TorchEngine

# Far from even, so that a position or a neighbour too many would be seen in the logits.
SPREAD = 0.3

NO_TOKENS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
SIZE = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(**fields: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(**SIZE, **NO_TOKENS, num_key_value_heads=2, initializer_range=SPREAD, **fields)
    ).eval()


def qwen3(**fields: Any) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(**SIZE, **NO_TOKENS, num_key_value_heads=2, head_dim=16, initializer_range=SPREAD, **fields)
    ).eval()


def whisper(**fields: Any) -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = WhisperConfig(
        vocab_size=97,
        d_model=32,
        encoder_layers=3,
        decoder_layers=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=2,
        init_std=SPREAD,
        **heads,
        **fields,
    )
    return WhisperForConditionalGeneration(config).eval()


@contextmanager
def running(decoder: Decoder, **limits: Any) -> Iterator[TorchEngine]:
    """An engine with these limits, closed in the end."""
    compute = Compute()
    engine = TorchEngine(decoder, compute, EngineLimits(**limits))
    yield engine
    engine.close()
    compute.close()


@frozen(eq=False)
class Subject:
    """A module, how the engine drives it, and the reference that knows neither cache nor company."""

    model: Any
    crossing: bool

    def decoder(self, **fields: Any) -> Decoder:
        if self.crossing:
            return CrossDecoder(self.model.model.decoder, self.model.proj_out, **fields)
        return CausalDecoder(self.model.model, self.model.lm_head, **fields)

    def embed(self, ids: Sequence[int]) -> torch.Tensor:
        embedded: torch.Tensor = self.model.get_input_embeddings()(torch.tensor(list(ids), dtype=torch.long)).detach()
        return embedded

    def encoded(self, number: int) -> torch.Tensor | None:
        """Encoder rows, of a length of their own for every number."""
        generator = torch.Generator().manual_seed(number)
        return torch.randn(3 + 5 * number % 17, 32, generator=generator) if self.crossing else None

    @torch.no_grad()
    def logits(self, ids: Sequence[int], encoded: torch.Tensor | None = None) -> torch.Tensor:
        batch = torch.tensor([list(ids)])
        if self.crossing:
            output = self.model(encoder_outputs=(encoded[None],), decoder_input_ids=batch, use_cache=False)
        else:
            output = self.model(batch, use_cache=False)
        logits: torch.Tensor = output.logits[0]
        return logits

    def greedy(
        self, ids: Sequence[int], budget: int, encoded: torch.Tensor | None = None
    ) -> tuple[list[int], list[float]]:
        """Token by token: slow, and with nothing to get wrong."""
        output, logprobs = list(ids), []
        for _ in range(budget):
            last = self.logits(output, encoded)[-1].log_softmax(-1)
            output.append(int(last.argmax()))
            logprobs.append(float(last.max()))
        return output[len(ids) :], logprobs


SUBJECTS = {
    "llama": (llama, {}, False),
    "llama-eager": (llama, {"attn_implementation": "eager"}, False),
    "qwen3": (qwen3, {}, False),
    "whisper": (whisper, {}, True),
    "whisper-eager": (whisper, {"attn_implementation": "eager"}, True),
}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other take longer than all that these modules compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    make, fields, crossing = SUBJECTS[request.param]
    return Subject(make(**fields), crossing)


@pytest.fixture(scope="session", params=[name for name, (_, _, crossing) in SUBJECTS.items() if not crossing])
def reader(request: pytest.FixtureRequest) -> Subject:
    """Those without cross attention, which generate from a prompt alone."""
    make, fields, crossing = SUBJECTS[request.param]
    return Subject(make(**fields), crossing)


@pytest.fixture(scope="session")
def small() -> Subject:
    """One for tests of what has nothing to do with the architecture."""
    return Subject(llama(), False)


@pytest.fixture(scope="session")
def listener() -> Subject:
    """One with cross attention."""
    return Subject(whisper(), True)


@pytest.fixture
def compute() -> Iterator[Compute]:
    compute = Compute()
    yield compute
    compute.close()
