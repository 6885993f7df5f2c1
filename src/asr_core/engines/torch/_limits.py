"""How much the engine takes on at once."""

from __future__ import annotations

from attrs import frozen


@frozen
class EngineLimits:
    """Bounds of one engine, each for a reason of its own.

    ``max_running`` requests share every forward, and memory grows up to as many slots; ``max_queued`` more wait, any
    further one is refused. ``prefill_chunk`` positions are read per turn, as running streams wait for them.
    A turn of more than ``step_timeout_s`` counts as hung: far more than an honest chunk takes on a slow processor.
    ``capacity`` is the number of positions of a slot, None where the decoder knows no end. ``keep_prefixes`` leaves a
    slot as it is when its request ends, so that one with an equal beginning need not compute it again: free for a
    decoder with memory for all its slots, not for one that allocates for each.
    """

    max_running: int = 16
    max_queued: int = 256
    prefill_chunk: int = 256
    step_timeout_s: float = 120.0
    capacity: int | None = None
    keep_prefixes: bool = False


DEFAULT_LIMITS = EngineLimits()
