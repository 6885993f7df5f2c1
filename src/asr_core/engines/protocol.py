"""What an engine is: token prompts and encoder rows in, tokens with log-probabilities out.

The protocol sits a level above decoders, so that an engine may as well be a server on another machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attrs import field, frozen

from asr_core.types import Finish, LoadedModel, Rule, Sampling, Tokens

if TYPE_CHECKING:
    from asr_core.engines.compute import Compute

EngineFeature = Literal["embeddings", "cross_attention", "probes", "rules", "custom_rules", "attention"]


@frozen(eq=False)
class EncodedRows:
    """Encoder rows of shape [n, width]; an equal ``key`` promises equal rows, so keys and values can be reused."""

    rows: Any = field(repr=False)
    key: bytes


PromptInput = Tokens | EncodedRows


@frozen(eq=False)
class GenerationRequest:
    """One generation: ``prompt`` parts are token runs or encoder rows; with ``given`` there is something to read.

    ``id`` is nobody else's while the request is there, and free again once its stream has ended.
    ``cross`` are the encoder rows a cross-attending decoder listens to. The other fields mean what they mean in
    :class:`~asr_core.types.PreparedClip`. ``inspect`` asks for the log-probabilities of these ids at the first new
    position, over the whole vocabulary and before rules: a probe is a request with a budget of 1 that inspects.
    ``caller`` groups the requests of one caller, among whom turns are shared: none waits for another's many.
    ``deadline`` is a time of :func:`time.monotonic`.
    """

    id: str
    prompt: tuple[PromptInput, ...] = field(repr=False)
    cross: EncodedRows | None = field(default=None, repr=False)
    given: Tokens = ()
    stop: frozenset[int] = frozenset()
    budget: int = 1
    sampling: Sampling = Sampling()
    rules: tuple[Rule, ...] = ()
    inspect: Tokens = ()
    caller: str = ""
    deadline: float | None = None


@frozen
class GeneratedToken:
    """A token, the stop token too; ``inspected`` on the first only.

    ``logprob`` is natural, over the whole vocabulary after rules, at temperature 1 however the token was drawn.
    """

    id: int
    logprob: float
    inspected: tuple[float, ...] = ()


@frozen
class Finished:
    """The last item of every stream that was not aborted."""

    reason: Finish


@frozen
class EngineStatistics:
    """Counters since start, and what waits and runs now.

    Every admitted request ends as ``finished``, ``failed`` (when the engine closes, too), ``aborted`` or, out of time,
    ``expired``; ``refused`` ones found the queue full and were never admitted. ``steps`` forward passes computed
    ``rows`` rows, so rows / steps is the mean batch. ``prefilled`` prompt positions were computed, ``reused`` ones were
    found in memory.
    """

    queued: int = 0
    running: int = 0
    finished: int = 0
    failed: int = 0
    aborted: int = 0
    expired: int = 0
    refused: int = 0
    tokens: int = 0
    steps: int = 0
    rows: int = 0
    prefilled: int = 0
    reused: int = 0


class Engine(Protocol):
    """Generates for one loaded model; safe to call from any event loop."""

    def generate(self, request: GenerationRequest) -> AsyncIterator[GeneratedToken | Finished]:
        """Stream tokens as they are decided; leaving the iterator early aborts the request.

        An async generator: the request is admitted when its first item is asked for, left by ``aclose()``, and by a
        task that is cancelled while it waits. An event loop that closed has left too.

        Raises:
            EngineMismatchError: the request needs a feature that is not on the engine's card; nothing is counted.
            EngineError: generation failed; other requests are not affected.
            DeadlineError: the request's deadline passed.
            OverloadedError: the engine takes no more work.
        """

    def abort(self, request_id: str) -> None:
        """Stop within one token, from any thread; unknown ids are ignored. The stream ends without Finished."""

    def statistics(self) -> EngineStatistics:
        """Counters at this moment."""

    def health(self) -> str | None:
        """None while all is well, else what is wrong, for ``/ready`` (a step that hangs, say); answers at once."""

    def close(self) -> None:
        """Fail what still runs with OverloadedError, refuse what comes later, free the memory; harmless twice.

        It may wait for the step that runs, so an event loop calls it in a thread.
        """


@frozen
class EngineCard:
    """An engine by name. ``parts`` of the weights are loaded in this process for it before ``create`` is called."""

    name: str
    summary: str
    features: frozenset[EngineFeature]
    parts: frozenset[str]
    create: Callable[[LoadedModel, Compute], Engine] = field(repr=False)
