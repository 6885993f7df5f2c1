"""Two models alike but for their encoder policies, whose encoder tells what it was given.

A frontend frame is 100 samples. Its feature is the frame's first sample, never less than the clip's peak minus 8: a
louder sound later changes what was quiet before. The row of a frame is the feature and its negative.
"""

import threading

import numpy as np

from asr_core import ModelCard, hookimpl
from asr_core.types import Checkpoint, EncoderPolicy, Feature, NativeLimit, PreparedClip, Recognized, Weights

FRAME = 100
POLICIES = {
    # At most 8 items and a summed cost, a wait of 4 ms, a large cache.
    "bounded": EncoderPolicy(
        max_items=8, max_cost=10.0, max_wait_s=0.004, cache_entries=4096, cache_bytes=2 << 30, timeout_s=60.0
    ),
    # Whatever is there, at once and in pairs, each tried alone when the pair fails.
    "immediate": EncoderPolicy(max_items=2, cache_entries=64, cache_bytes=1 << 20, timeout_s=300.0, retry_items=True),
}


class Encoder:
    """Tests replace what it calls, to block, raise or answer something else.

    ``listen`` is called before features are computed, ``before`` with each batch as lists of features, ``answer`` with
    the rows. With ``parts`` encode_batch is a generator of so many, before each of which ``part`` is called with the
    batch; ``ended`` are the batches whose generators are no more.
    """

    def __init__(self):
        self.batches = []
        self.threads = set()
        self.listen = lambda: None
        self.before = lambda batch: None
        self.answer = lambda rows: rows
        self.parts = 0
        self.part = lambda batch: None
        self.ended = []

    def encode(self, features):
        batch = [feature.data.tolist() for feature in features]
        self.batches.append(batch)
        self.threads.add(threading.current_thread().name)
        self.before(batch)
        return batch

    def in_parts(self, features):
        batch = self.encode(features)
        try:
            for _ in range(self.parts):
                self.part(batch)
                yield
            return self.answer(rows_of(batch))
        finally:
            self.ended.append(batch)


@hookimpl
def register_models(register):
    for name in POLICIES:
        register(ModelCard(name))


@hookimpl
def resolve_checkpoint(ref):
    return Checkpoint(ref, ref, path=None) if ref in POLICIES else None


@hookimpl
def encoder_policy(model):
    return POLICIES[model.checkpoint.model]


@hookimpl
def native_limit():
    return NativeLimit(16_000, seconds=None)


@hookimpl
def prepare_frontend():
    # The spans whose features were computed.
    return []


@hookimpl
def prepare_clip(clip):
    return PreparedClip(spans=())


@hookimpl
def extract_features(model, clip, spans):
    model.weights.encoder.listen()
    model.frontend.extend(spans)
    floor = clip.samples.max() - 8
    heard = [np.maximum(clip.samples[span.start_sample : span.end_sample : FRAME], floor) for span in spans]
    return [Feature(levels, len(levels)) for levels in heard]


@hookimpl
def load_weights():
    return Weights(encoder=Encoder())


def rows_of(batch):
    import torch

    rows = [torch.tensor([[level, -level] for level in levels]).reshape(-1, 2) for levels in batch]
    # Views of one tensor, as a batched encoder returns them.
    whole = torch.cat(rows)
    return list(whole.split([len(levels) for levels in batch]))


@hookimpl
def encode_batch(model, features):
    encoder = model.weights.encoder
    return encoder.in_parts(features) if encoder.parts else encoder.answer(rows_of(encoder.encode(features)))


@hookimpl
def recognize_batch(model, features):
    batch = model.weights.encoder.encode(features)
    return [Recognized(tuple(map(int, levels)), (0.0,) * len(levels)) for levels in batch]


@hookimpl
def decode_tokens(state):
    return (), state
