"""What a plugin asks the engine to do with one clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import Factory, frozen

from asr_core.types._audio import AudioSpan
from asr_core.types._model import Task

Tokens = tuple[int, ...]


@frozen
class ServerVad:
    """OpenAI's ``server_vad``: sound is cut where speech pauses, and what is no speech is not decoded.

    ``threshold`` (0 to 1) is how sure of speech the detector has to be, ``silence_duration_ms`` how long a pause ends
    what is said, ``prefix_padding_ms`` how much before speech is kept. Defaults are OpenAI's.
    """

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 200


@frozen
class TranscriptionRequest:
    """What the caller asked for, already checked against the model's capabilities.

    ``languages`` are candidates, of which detection is to choose; empty for all. ``temperature`` is None when the
    caller gave none, which is not the same as 0. ``times`` is a subset of {"segment", "word"}. ``server_vad`` says how
    to cut, None for the model's policy. ``options`` holds the fields the plugin declared, validated by type.
    """

    task: Task = "transcribe"
    language: str | None = None
    languages: tuple[str, ...] = ()
    prompt: str | None = None
    keywords: tuple[str, ...] = ()
    temperature: float | None = None
    times: frozenset[str] = frozenset()
    server_vad: ServerVad | None = None
    options: Mapping[str, Any] = Factory(dict)


@frozen
class ClipContext:
    """Why ``prepare_clip`` is called, and what is known by then.

    ``attempt`` counts retries from 0 and ``reason`` is the review's. ``language`` is the caller's, or what an earlier
    clip of the same request turned out to speak. ``probe_results`` maps a probe's name to natural log-probabilities in
    the order of its ``token_ids``. ``hypothesis`` are output tokens whose text was sent and stands: the core puts them
    in place of ``given``. ``previous_text`` is that of the clip before, where the policy carries it; a retry because
    of a loop has none.
    """

    attempt: int = 0
    reason: str | None = None
    previous_text: str = ""
    language: str | None = None
    hypothesis: Tokens = ()
    probe_results: Mapping[str, tuple[float, ...]] = Factory(dict)


@frozen
class AudioSlice:
    """``count`` encoder rows of span number ``span``, from row ``first`` on, in place of prompt tokens."""

    span: int
    first: int
    count: int


PromptPart = Tokens | AudioSlice


@frozen
class Probe:
    """A question to the model: the log-probabilities of ``token_ids`` after ``prompt``, over the whole vocabulary."""

    name: str
    prompt: tuple[PromptPart, ...]
    token_ids: Tokens


@frozen
class Alignment:
    """A question to the model: at which encoder rows ``heads``, as (layer, head), look from the ``prompt``.

    The prompt is tokens; the rows are those of the clip's ``cross``.
    """

    prompt: Tokens
    heads: tuple[tuple[int, int], ...]


@frozen
class Sampling:
    """How the next token is drawn: 0 is greedy, else softmax at ``temperature`` cut to ``top_k`` and then ``top_p``.

    ``top_k`` is None for the whole vocabulary; ``seed`` makes what is drawn repeatable. ``beam_size`` texts are
    followed side by side, and the best of them is told.

    Raises:
        ValueError: a beam of several is to be drawn, which only the likeliest can be.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int | None = None
    beam_size: int = 1

    def __attrs_post_init__(self) -> None:
        if self.beam_size > 1 and self.temperature:
            raise ValueError("a beam search is for temperature 0")


@frozen
class Suppress:
    """These tokens are never generated; with ``at_begin``, only not as the first output token."""

    token_ids: Tokens
    at_begin: bool = False


@frozen
class Force:
    """The output begins with exactly these tokens."""

    token_ids: Tokens


@frozen
class Bias:
    """``amount`` is added to the logits of these tokens before sampling."""

    token_ids: Tokens
    amount: float


class CustomRule(Protocol):
    """A rule no value can express; rows with equal rules share one call, so equality must mean interchangeable."""

    def apply(self, seen: Sequence[Sequence[int]], logits: Any) -> Any:
        """Logits of shape [rows, vocabulary] in, changed ones out (in place is fine); ``seen[i]`` is row i's output."""


ValueRule = Suppress | Force | Bias
Rule = ValueRule | CustomRule


@frozen
class PreparedClip:
    """Everything the core needs to run one clip, as values.

    ``spans`` is what is encoded. ``prompt`` is where it goes: token runs and slices of encoder rows. ``cross`` is the
    index of the span a cross-attending decoder listens to. ``given`` are output tokens already decided: the engine
    appends them to the prompt, rules and text see them as output, budget and mean log-probability do not.
    ``stop`` ends generation, ``budget`` bounds the new tokens and is the plugin's to keep within the model's context.
    ``probes`` without a result in the context are answered and ``prepare_clip`` is called again. A model that
    recognises without generating needs ``spans`` alone.

    Raises:
        ValueError: ``cross`` or a slice names rows that are not there.
    """

    spans: tuple[AudioSpan, ...]
    prompt: tuple[PromptPart, ...] = ()
    cross: int | None = None
    given: Tokens = ()
    stop: frozenset[int] = frozenset()
    language: str | None = None
    budget: int = 0
    sampling: Sampling = Sampling()
    rules: tuple[Rule, ...] = ()
    probes: tuple[Probe, ...] = ()

    def __attrs_post_init__(self) -> None:
        probed = (part for probe in self.probes for part in probe.prompt)
        for part in (*self.prompt, *probed):
            if isinstance(part, AudioSlice):
                self._check_slice(part)
        if self.cross is not None and not 0 <= self.cross < len(self.spans):
            raise ValueError(f"cross is span {self.cross} of {len(self.spans)}")

    def _check_slice(self, part: AudioSlice) -> None:
        if not 0 <= part.span < len(self.spans):
            raise ValueError(f"{part} is of span {part.span} of {len(self.spans)}")
        if not 0 <= part.first <= part.first + part.count <= self.spans[part.span].tokens:
            raise ValueError(f"{part} reaches beyond the {self.spans[part.span].tokens} rows of its span")
