"""The Python API: ``load`` a model, ``transcribe`` files and arrays, from ordinary blocking code."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
from anyio.from_thread import BlockingPortal, start_blocking_portal

from asr_core import audio
from asr_core.admission import admit
from asr_core.engines.compute import Compute
from asr_core.errors import OverloadedError
from asr_core.loading import EngineOptions, ServedModel, open_model
from asr_core.pipeline import Progress, ReadAudio, transcribe
from asr_core.plugins import Plugins
from asr_core.types import Task, Transcript, TranscriptionRequest, UploadLimits, Waveform

LOCAL_LIMITS = UploadLimits(max_bytes=sys.maxsize, max_decode_seconds=3600.0)
"""What a person's own files may be: only the length that one request may have in memory is bounded."""


def load(
    model: str,
    *,
    checkpoint: str | None = None,
    engine: str = "torch",
    device: str = "auto",
    dtype: str = "auto",
    aligner: str | None = None,
    vad: str | None = None,
    chunk: Mapping[str, Any] | None = None,
    plugins: Plugins | None = None,
) -> Transcriber:
    """Open ``model``: a name (``asr-core models`` lists them), a directory, a file or a hub id.

    ``checkpoint`` is a directory or hub id to read in place of what the name stands for. ``aligner`` names one that
    times words (``asr-core plugins list``), also for a model with times of its own. ``vad`` names what tells speech
    from other sound, which is skipped. ``chunk`` holds fields of :class:`~asr_core.types.ChunkPolicy` in place of the
    plugin's.

    Raises:
        ModelNotFoundError: no installed plugin knows it; the message has near names.
        CheckpointError: its weights cannot be had; the message says what would help.
        PolicyError: ``chunk`` does not fit the model, or is no chunk policy.
    """
    options = EngineOptions(engine, device, dtype, aligner, vad, chunk or {})
    return Transcriber(plugins or Plugins.discover(), model, options, checkpoint)


class Transcriber:
    """A loaded model, safe to call from several threads; close it, or use ``with``, to free the memory."""

    def __init__(self, plugins: Plugins, model: str, options: EngineOptions, checkpoint: str | None = None) -> None:
        with ExitStack() as stack:
            compute = Compute()
            stack.callback(compute.close)
            self._served = open_model(plugins, model, options, compute, checkpoint)
            stack.callback(self._served.close)
            self._portal = stack.enter_context(start_blocking_portal())
            stack.callback(_stop, self._portal)
            # Also when nobody closes it: the interpreter would wait for ever for the thread of the event loop.
            self._close = weakref.finalize(self, stack.pop_all().close)

    @property
    def served(self) -> ServedModel:
        """What was loaded: card, capabilities, limits, device and dtype."""
        return self._served

    def check(self, **fields: Any) -> None:
        """Refuse what :meth:`transcribe` would refuse of every audio; ``fields`` are those of TranscriptionRequest.

        Raises:
            InvalidRequestError: the request cannot be served; the message says why.
        """
        request = admit(self._served.card.name, self._served.capabilities, _request(**fields))
        self._served.hooks.check_request(self._served.model, request)

    def transcribe(
        self,
        source: str | PathLike[str] | bytes | npt.NDArray[Any],
        *,
        rate: int | None = None,
        task: Task = "transcribe",
        language: str | None = None,
        languages: Iterable[str] = (),
        prompt: str | None = None,
        keywords: Iterable[str] = (),
        temperature: float | None = None,
        times: Iterable[str] = (),
        progress: Progress = lambda done, of: None,
        **options: Any,
    ) -> Transcript:
        """Transcribe a file (path or bytes, any container) or an array of shape [n] or [n, channels].

        ``rate`` is the array's sample rate, by default the model's own. ``times`` may hold "segment" and "word".
        ``progress`` is told, from another thread, how many of how many seconds are done. Further keywords are the
        options the model declares.

        Raises:
            InvalidRequestError: the request or the audio cannot be served; the message says why.
        """
        request = _request(
            languages, keywords, times, task=task, language=language, prompt=prompt, temperature=temperature,
            options=options,
        )  # fmt: skip
        if hasattr(source, "dtype"):
            read: ReadAudio = partial(_from_array, source, rate)
        else:
            read = partial(audio.read, source, limits=LOCAL_LIMITS)
        try:
            return self._portal.call(transcribe, self._served, read, request, progress)
        except (CancelledError, RuntimeError) as error:
            if self._close.alive:
                raise
            raise OverloadedError("the model was closed") from error

    def close(self) -> None:
        """Stop what runs, within one token, and take no more; harmless twice."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _request(
    languages: Iterable[str] = (), keywords: Iterable[str] = (), times: Iterable[str] = (), **fields: Any
) -> TranscriptionRequest:
    return TranscriptionRequest(languages=tuple(languages), keywords=tuple(keywords), times=frozenset(times), **fields)


async def _from_array(samples: Any, source_rate: int | None, rate: int) -> Waveform:
    return await asyncio.to_thread(audio.from_array, samples, source_rate or rate, rate, LOCAL_LIMITS)


def _stop(portal: BlockingPortal) -> None:
    portal.call(portal.stop, True)
