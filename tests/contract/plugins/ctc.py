"""A CTC model of random weights: it does not generate, so the core asks it to recognise.

What is heavy is imported where it is needed: registering must stay cheap.
"""

import numpy as np

from asr_core import ModelCard, hookimpl
from asr_core.types import (
    AudioSpan,
    Capabilities,
    Checkpoint,
    End,
    Feature,
    NativeLimit,
    PreparedClip,
    Recognized,
    Start,
    Weights,
)


@hookimpl
def register_models(register):
    register(ModelCard("random-ctc"))


@hookimpl
def resolve_checkpoint(ref):
    return Checkpoint("random-ctc", ref, path=None) if ref == "random-ctc" else None


@hookimpl
def capabilities():
    return Capabilities(segment_times=True, generates=False)


@hookimpl
def native_limit():
    return NativeLimit(16_000, seconds=None)


@hookimpl
def prepare_frontend():
    return "|abcdefghijklmnopqrstuvwxyz'- "


@hookimpl
def prepare_clip(clip):
    return PreparedClip(spans=(AudioSpan(0, len(clip.samples)),))


@hookimpl
def extract_features(clip, spans):
    # The convolutions need 400 samples for their first frame.
    return [Feature(np.pad(clip.samples, (0, max(0, 400 - len(clip.samples)))), len(clip.samples)) for _ in spans]


@hookimpl
def load_weights(device):
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    torch.manual_seed(3)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = Wav2Vec2Config(vocab_size=30, conv_dim=(16,) * 7, num_conv_pos_embeddings=16, **size)
    return Weights(Wav2Vec2ForCTC(config).eval().to(device))


@hookimpl
def recognize_batch(model, features):
    import torch

    # One by one: this architecture's normalisation makes padded batches differ from single clips.
    return [_recognize(model.weights.encoder(torch.from_numpy(one.data)[None]).logits[0]) for one in features]


def _recognize(logits):
    best, ids = logits.log_softmax(-1).max(-1)
    kept = [n for n, token in enumerate(ids) if token and (n == 0 or token != ids[n - 1])]
    return Recognized(tuple(ids[kept].tolist()), tuple(best[kept].tolist()), tuple(20 * n for n in kept))


@hookimpl
def decode_tokens(model, tokens, state, final, times):
    words = "".join(model.frontend[token] for token in tokens)
    # One segment, from the first token's time until a frame of 20 ms after the last one's.
    last = times[-1] + 20 if times else state
    begin = (Start(times[0]),) if times and state is None else ()
    end = (End(last),) if final and last is not None else ()
    return (*begin, words, *end), last
