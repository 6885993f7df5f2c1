"""A decoder-only model of random weights that hears loudness, as its author would write it: policy and nothing else."""

import numpy as np

from asr_core import ModelCard, hookimpl
from asr_core.types import (
    AudioSlice,
    AudioSpan,
    Capabilities,
    Checkpoint,
    ChunkPolicy,
    Feature,
    NativeLimit,
    OptionSpec,
    PreparedClip,
    Weights,
)

HOP, STOP, BOS, LETTERS = 1600, 27, 28, "abcdefghijklmnopqrstuvwxyz "


@hookimpl
def register_models(register):
    register(ModelCard("parrot", aliases=("polly",), summary="repeats nonsense"))


@hookimpl
def resolve_checkpoint(ref):
    return Checkpoint("parrot", ref, path=None) if ref in ("parrot", "polly") else None


@hookimpl
def capabilities():
    return Capabilities(options=(OptionSpec("letters", "integer", "how many to say"),))


@hookimpl
def native_limit():
    return NativeLimit(16_000, seconds=5.0, sources={"seconds": "a parrot's patience"})


@hookimpl
def chunk_policy():
    return ChunkPolicy(target_s=5.0)


@hookimpl
def prepare_frontend():
    return LETTERS


@hookimpl
def prepare_clip(clip, request):
    rows = -(-len(clip.samples) // HOP)
    return PreparedClip(
        spans=(AudioSpan(0, len(clip.samples), tokens=rows),),
        prompt=((BOS,), AudioSlice(span=0, first=0, count=rows)),
        stop=frozenset({STOP}),
        budget=request.options.get("letters", 8),
    )


@hookimpl
def extract_features(clip, spans):
    frames = np.pad(clip.samples, (0, -len(clip.samples) % HOP)).reshape(-1, HOP)
    loudness = np.abs(frames).mean(axis=1, keepdims=True)
    return [Feature(loudness, len(loudness)) for _ in spans]


@hookimpl
def load_weights(device):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from asr_core.engines.torch import CausalDecoder

    torch.manual_seed(7)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=29, **size, **ends)).eval().to(device)
    return Weights(torch.nn.Linear(1, 16).to(device), CausalDecoder(model.model, model.lm_head))


@hookimpl
def encode_batch(model, features):
    import torch

    return [model.weights.encoder(torch.from_numpy(feature.data)) for feature in features]


@hookimpl
def decode_tokens(model, tokens, state):
    return ("".join(model.frontend[token] for token in tokens if token < STOP),), state
