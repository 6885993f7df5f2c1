"""The two hooks that turn features into outputs, and what the encoder service must know of those outputs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

from asr_core.errors import PluginError
from asr_core.model_hooks import ModelHooks
from asr_core.types import Feature, LoadedModel, Recognized


class SpanCall(Protocol):
    """One output per feature, in host memory and independent of its batch."""

    def run(self, features: Sequence[Feature]) -> Generator[None, None, list[Any]]:
        """Call the hook; iterate on the compute thread, where it can be suspended. Returns what is all computed."""

    def check(self, output: Any, tokens: int) -> None:
        """Raise PluginError when this is not what a span of ``tokens`` rows was promised."""

    def size(self, output: Any) -> int:
        """Bytes that keeping it takes."""


class EncodeCall:
    """``encode_batch``: rows of shape [tokens, width], the first ones setting width and dtype for all."""

    def __init__(self, hooks: ModelHooks, model: LoadedModel) -> None:
        self._hooks = hooks
        self._model = model
        self._kind: tuple[int, Any] | None = None

    def run(self, features: Sequence[Feature]) -> Generator[None, None, list[Any]]:
        """See :class:`SpanCall`."""
        encoded = self._hooks.encode_batch(self._model, features)
        if isinstance(encoded, Generator):
            encoded = yield from encoded
        return [_on_host(rows) for rows in encoded]

    def check(self, output: Any, tokens: int) -> None:
        """See :class:`SpanCall`."""
        if getattr(output, "ndim", None) != 2:
            shape = tuple(getattr(output, "shape", ())) or type(output).__name__
            raise self._fault(f"{shape} for a span, not rows of shape [tokens, width]")
        if len(output) != tokens:
            raise self._fault(f"{len(output)} rows for a span of {tokens} tokens")
        kind = (output.shape[1], output.dtype)
        self._kind = self._kind or kind
        if kind != self._kind:
            raise self._fault(f"rows of width {kind[0]} in {kind[1]}, and {self._kind[0]} in {self._kind[1]} before")

    def size(self, output: Any) -> int:
        """See :class:`SpanCall`."""
        size: int = output.nbytes
        return size

    def _fault(self, what: str) -> PluginError:
        return PluginError(f"{self._hooks.owner}: encode_batch returned {what}")


class RecognizeCall:
    """``recognize_batch``: tokens instead of rows, already checked one by one."""

    def __init__(self, hooks: ModelHooks, model: LoadedModel) -> None:
        self._hooks = hooks
        self._model = model

    def run(self, features: Sequence[Feature]) -> Generator[None, None, list[Any]]:
        """See :class:`SpanCall`; in one part."""
        yield from ()
        return list(self._hooks.recognize_batch(self._model, features))

    def check(self, output: Any, tokens: int) -> None:
        """See :class:`SpanCall`; any number of tokens is right."""

    def size(self, output: Recognized) -> int:
        """See :class:`SpanCall`: about what Python numbers take."""
        return 32 * (len(output.tokens) + len(output.logprobs) + len(output.times))


def _on_host(rows: Any) -> Any:
    """A copy: a view would keep its whole batch alive, and device memory is the engine's to bound.

    Copying waits for the device, so a computation that fails late fails here and not at some later reader.
    """
    import torch

    if not isinstance(rows, torch.Tensor):
        return rows
    return rows.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
