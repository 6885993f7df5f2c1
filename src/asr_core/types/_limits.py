"""Three numbers that must never be one number, what a server has room for, and two policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import Factory, frozen


@frozen
class NativeLimit:
    """What one forward pass of the model can take: a fact of the checkpoint, owned by the plugin.

    ``seconds`` is None for a model without a bound. ``sample_rate`` is the rate the core resamples to. ``sources``
    says, per field, where the number was read: shown by ``explain`` and in refusals.
    """

    sample_rate: int
    seconds: float | None
    context_tokens: int | None = None
    audio_tokens_per_second: float | None = None
    sources: Mapping[str, str] = Factory(dict)


@frozen
class ChunkPolicy:
    """What is sent to the model at once: the plugin's default, which an operator may override.

    Longer audio is cut into clips of at most ``target_s`` (None: as long as the native limit allows), in the last
    ``search_s`` before that, or half of it if that is less: 6 s of reading have a pause in them, 2 s every other time.
    A tail shorter than ``min_tail_s`` pulls the previous cut earlier. Beside such a cut ``overlap_s`` of the other
    clip, at most a quarter of ``target_s``, are heard too and count towards it (where segments are timed, not before a
    rest of 0.3 s); what both say is told once, when both are done. Where no sample reaches ``silence_floor`` (linear,
    1.0 is full scale) nothing sounds: stretches of ``skip_s`` and more are not decoded, but for ``pad_s`` at either
    end, as models invent words on silence. ``parallel`` clips of one request are worked on at once, or all of them
    where they are at most half as many more: one that is left for the end takes as long as the others. ``carry_text``
    gives each clip the text of the one before, and so has them wait for one another; it needs a model to whom a prompt
    is previous text. Below ``least_rate`` bytes of UTF-8 for each second in which somebody speaks, the text of a clip
    is taken to have ended early: speech has 10 to 20 in any script.

    Raises:
        ValueError: a number that nothing could be cut by; the message begins with the name of the field.
    """

    target_s: float | None = None
    search_s: float = 6.0
    overlap_s: float = 0.0
    min_tail_s: float = 1.0
    silence_floor: float = 1e-3
    skip_s: float = 5.0
    pad_s: float = 0.3
    parallel: int = 4
    carry_text: bool = False
    least_rate: float = 3.0

    def __attrs_post_init__(self) -> None:
        if self.target_s is not None and not self.target_s >= 1.0:
            raise ValueError("target_s must be at least 1 second")
        if self.parallel < 1:
            raise ValueError("parallel must be at least 1")
        if not self.skip_s > 0.0:
            raise ValueError("skip_s must be positive")
        for name in ("search_s", "overlap_s", "min_tail_s", "silence_floor", "pad_s", "least_rate"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} must not be negative")

    def at_once(self, clips: int) -> int:
        """How many are worked on at once of a request of so many."""
        return clips if clips <= 1.5 * self.parallel else self.parallel


@frozen
class UploadLimits:
    """What one caller may send at all: owned by the endpoint.

    ``max_bytes`` and ``min_seconds`` default to what OpenAI publishes, 25 MiB and 0.1 s: models invent words for less
    sound than any word needs. ``max_seconds`` and ``max_decode_seconds`` are enforced while
    decoding, so that a small file which unfolds to hours of sound stays small in memory.
    """

    max_bytes: int = 26_214_400
    min_seconds: float = 0.1
    max_seconds: float = 4 * 3600.0
    max_decode_seconds: float = 120.0

    @property
    def body_bytes(self) -> int:
        """What a whole body may have: 2 MiB more than the largest file, for the other fields and the part headers."""
        return self.max_bytes + 2 * 1024 * 1024


@frozen
class ServerLimits:
    """What all callers together may have in progress, and how long one of them may take; ``upload`` is for each alone.

    ``max_total_bytes`` of uploads may be on disk, and ``max_total_seconds`` of decoded sound in memory (a minute at
    16 kHz is 3.8 MB), while ``max_decodes`` uploads are decoded. Who finds the sound's limits reached waits
    ``max_wait`` seconds. A request takes at most ``request_timeout`` seconds, by default as long as the openai client
    waits, of which its upload may pause for ``upload_timeout``.

    Raises:
        ValueError: one upload that ``upload`` allows could never be served.
    """

    upload: UploadLimits = UploadLimits()
    max_total_bytes: int = 1024**3
    max_total_seconds: float = 8 * 3600.0
    max_decodes: int = 4
    max_wait: float = 10.0
    request_timeout: float = 600.0
    upload_timeout: float = 30.0

    def __attrs_post_init__(self) -> None:
        if self.max_total_bytes < self.upload.body_bytes:
            raise ValueError(f"max_total_bytes must be at least {self.upload.body_bytes}: one file, and form fields")
        if self.max_total_seconds < self.upload.max_seconds:
            raise ValueError("max_total_seconds must not be less than max_seconds")


@frozen
class EncoderPolicy:
    """How spans are batched, cached and retried on their way through the encoder.

    A batch closes at ``max_items``, at a summed cost of ``max_cost`` (a span that costs more goes alone) or
    ``max_wait_s`` after its first span came. ``queue_bound`` spans may wait. ``cache_entries`` and ``cache_bytes``
    bound the outputs kept in host memory (0 keeps none). A call of the hook that is not back after ``timeout_s`` fails
    whoever waits for it. ``retry_items`` runs the items of a failed batch one by one.

    Raises:
        ValueError: a bound that nothing could keep.
    """

    max_items: int = 8
    max_cost: float | None = None
    max_wait_s: float = 0.0
    queue_bound: int = 256
    cache_entries: int = 0
    cache_bytes: int = 0
    timeout_s: float = 300.0
    retry_items: bool = False

    def __attrs_post_init__(self) -> None:
        for name in ("max_items", "queue_bound", "timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
        for name in ("max_wait_s", "cache_entries", "cache_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")


@frozen
class StreamingPolicy:
    """How live text is refreshed and when it becomes final.

    ``commit`` is the unit after which text is never taken back. A model with a review that commits by ``token`` does so
    in runs of ``review_tokens``, each reviewed first. ``rollback_tokens`` of the last hypothesis are decoded again at
    each refresh.

    Raises:
        ValueError: ``review_tokens`` is not positive.
    """

    refresh_s: float = 2.0
    rollback_tokens: int = 5
    commit: Literal["token", "segment", "clip"] = "token"
    review_tokens: int = 32

    def __attrs_post_init__(self) -> None:
        if self.review_tokens <= 0:
            raise ValueError("review_tokens must be positive")
