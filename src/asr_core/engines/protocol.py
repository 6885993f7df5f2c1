"""What an engine is: token prompts and encoder rows in, tokens with log-probabilities out.

The protocol sits a level above decoders, so that an engine may as well be a server on another machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from asr_core.types import Finish, LoadedModel, Rule, Sampling, Tokens, ValueRule

if TYPE_CHECKING:
    from asr_core.engines.compute import Compute

EngineFeature = Literal["embeddings", "cross_attention", "probes", "rules", "custom_rules", "attention", "beams"]
"""What an engine may or may not have; sampling, stop and given tokens are no features, every engine has them.

``embeddings``: encoder rows in the prompt. ``cross_attention``: rows a decoder listens to. ``probes``: ``inspect`` of
any ids, for which the likeliest few are not enough. ``rules``: all of Suppress (with at_begin), Force and Bias,
position by position, for which a fixed logit bias is not enough. ``custom_rules``: ``apply`` runs in this process.
``attention``: ``attend``, for which the decoder's cross attention must be at hand. ``beams``: a ``beam_size`` above 1.
"""


@frozen(eq=False)
class EncodedRows:
    """Encoder rows of shape [n, width]; an equal ``key`` promises equal rows, so keys and values can be reused.

    ``rows`` is a torch tensor in host memory, in the encoder's dtype (bfloat16, which numpy lacks, too) and in the
    decoder's embedding space; shared with other requests, so read only.
    """

    rows: Any = field(repr=False)
    key: bytes


PromptInput = Tokens | EncodedRows


@frozen(eq=False)
class GenerationRequest:
    """One generation: ``prompt`` parts are token runs or encoder rows; with ``given`` at least one position.

    ``id`` is nobody else's while the request is there, and free again once its stream has ended. ``budget`` is at least
    1; an engine that can hold less ends with ``length``.
    ``cross`` are the encoder rows a cross-attending decoder listens to. The other fields mean what they mean in
    :class:`~asr_core.types.PreparedClip`. ``inspect`` asks for the log-probabilities of these ids at the first new
    position, over the whole vocabulary and before rules: a probe is a request with a budget of 1 that inspects.
    ``attend`` asks for the cross attention of these heads, as (layer, head), from every position of prompt and given
    tokens: with a budget of 1 too. Neither is there for a beam of several.
    ``caller`` groups the requests of one caller, among whom turns are shared: none waits for another's many.
    ``deadline`` is a time of this process's :func:`time.monotonic`: a server elsewhere is sent the seconds left.
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
    attend: tuple[tuple[int, int], ...] = ()
    caller: str = ""
    deadline: float | None = None


def needed_features(request: GenerationRequest) -> frozenset[EngineFeature]:
    """What an engine's card must promise before it may serve ``request``."""
    custom = [rule for rule in request.rules if not isinstance(rule, ValueRule)]
    needs: dict[EngineFeature, bool] = {
        "embeddings": any(isinstance(part, EncodedRows) for part in request.prompt),
        "cross_attention": request.cross is not None,
        "probes": bool(request.inspect),
        "rules": len(custom) < len(request.rules),
        "custom_rules": bool(custom),
        "attention": bool(request.attend),
        "beams": request.sampling.beam_size > 1,
    }
    return frozenset(feature for feature, needed in needs.items() if needed)


@frozen
class GeneratedToken:
    """A token, the stop token too; ``inspected`` and ``attention`` on the first only.

    ``logprob`` is natural, over the whole vocabulary after rules, at temperature 1 however the token was drawn: an
    engine whose server reports otherwise converts it, and adds a stop token that its server swallows. ``attention`` is
    float32 of shape [heads, prompt positions, encoder rows]: scaled products of queries and keys, before the softmax.
    """

    id: int
    logprob: float
    inspected: tuple[float, ...] = ()
    attention: npt.NDArray[np.float32] | None = field(default=None, repr=False, eq=False)


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
    found in memory. ``tokens`` were delivered. What an engine cannot know stays 0.
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
    """Generates for one loaded model; safe to call from any event loop.

    So what it does, it does on threads of its own, and items reach a reader by ``call_soon_threadsafe``, whose
    RuntimeError means that the reader's loop is gone.
    """

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GeneratedToken | Finished, None]:
        """Stream tokens as they are decided; leaving the iterator early aborts the request.

        Tokens of a beam are decided once all its texts agree on them. An async generator: the request is admitted when
        its first item is asked for, left by ``aclose()``, and by a task that is cancelled while it waits. An event loop
        that closed has left too. The core leaves by :meth:`abort` and may close the generator much later, when the id
        is another request's: closing ends the run, not the id.

        Raises:
            EngineMismatchError: the request needs a feature that is not on the engine's card; nothing is counted.
            EngineError: generation failed, a connection broke, there is nothing to read, or the id is there already;
                other requests are not affected. Nothing but EngineErrors leaves a stream.
            DeadlineError: the request's deadline passed.
            OverloadedError: the engine takes no more work.
        """

    def abort(self, request_id: str) -> None:
        """Stop within one token, from any thread; unknown ids are ignored. The stream ends without Finished.

        What a server still sends is dropped; it is told by closing the connection and need not have answered.
        """

    def statistics(self) -> EngineStatistics:
        """Counters at this moment."""

    def health(self) -> str | None:
        """None while all is well, else what is wrong, for ``/ready`` (a step that hangs, say); answers at once."""

    def close(self) -> None:
        """Fail what still runs with OverloadedError, refuse what comes later, free the memory; harmless twice.

        It may wait for the step that runs, so an event loop calls it in a thread. The compute thread is the core's.
        """


@frozen
class EngineCard:
    """An engine by name. ``parts`` of the weights are loaded in this process for it before ``create`` is called.

    ``create`` runs at start-up, off any event loop, and may block. Settings of its own, a server's address say, are
    environment variables that the engine documents. It raises EngineError where the server has other weights than
    ``model.checkpoint``; a server that is down is ``health``'s affair.
    """

    name: str
    summary: str
    features: frozenset[EngineFeature]
    parts: frozenset[str]
    create: Callable[[LoadedModel, Compute], Engine] = field(repr=False)
