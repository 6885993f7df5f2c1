"""Where a span lies -> digest of its features -> what the encoder made of them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from concurrent.futures import Future
from typing import Any

import numpy as np

from asr_core.runtime._batches import Address
from asr_core.types import AudioSpan, Clip, EncoderPolicy, Feature

Place = tuple[bytes, int, int, int, int, str]
"""Fingerprint of the waveform, bounds of the clip, bounds and key of the span."""

_DIGEST_BYTES = 16


def place(clip: Clip, span: AudioSpan) -> Place:
    """Equal places have equal features; the clip counts, as some frontends normalise over all of it."""
    bounds = (clip.start_sample, clip.end_sample, span.start_sample, span.end_sample)
    return (clip.waveform.fingerprint, *bounds, span.key)


def digest(feature: Feature) -> bytes:
    """16 bytes, BLAKE2b over dtype, shape, length and data."""
    data = np.ascontiguousarray(feature.data)
    head = f"{data.dtype.str} {feature.data.shape} {feature.length} "
    hashed = hashlib.blake2b(head.encode(), digest_size=_DIGEST_BYTES)
    hashed.update(data.data)
    return hashed.digest()


class EncoderCache:
    """The least recently used go first; whoever uses it holds a lock.

    Outputs are kept as the finished futures their first readers waited for, so that a hit and a wait look the same.
    """

    def __init__(self, policy: EncoderPolicy) -> None:
        self._max_entries = policy.cache_entries
        self._max_bytes = policy.cache_bytes
        self._digests: OrderedDict[Place, bytes] = OrderedDict()
        self._outputs: OrderedDict[Address, tuple[Future[Any], int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._outputs)

    def __contains__(self, address: Address) -> bool:
        return address in self._outputs

    def digest_at(self, place: Place) -> bytes | None:
        """None when the features of this place were never computed, or long ago."""
        if place in self._digests:
            self._digests.move_to_end(place)
        return self._digests.get(place)

    def learn(self, place: Place, digest: bytes) -> None:
        """Remember which features lie at ``place``."""
        self._digests[place] = digest
        self._digests.move_to_end(place)
        while len(self._digests) > self._max_entries:
            self._digests.popitem(last=False)

    def get(self, address: Address) -> Future[Any] | None:
        """A finished output."""
        if address not in self._outputs:
            return None
        self._outputs.move_to_end(address)
        return self._outputs[address][0]

    def put(self, address: Address, output: Future[Any], size: int) -> int:
        """Keep an output of ``size`` bytes; returns how many others had to go for it."""
        if not self._max_entries or size > self._max_bytes:
            return 0
        self._outputs[address] = (output, size)
        self.bytes += size
        evicted = 0
        while len(self._outputs) > self._max_entries or self.bytes > self._max_bytes:
            _, (_, freed) = self._outputs.popitem(last=False)
            self.bytes -= freed
            evicted += 1
        return evicted

    def clear(self) -> None:
        """Forget everything."""
        self._digests.clear()
        self._outputs.clear()
        self.bytes = 0
