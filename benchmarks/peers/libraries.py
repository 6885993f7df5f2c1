"""Libraries as their own documents use them: defaults everywhere, but for the language, which everybody is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen

from .weights import Weights

Hear = Callable[[npt.NDArray[np.float32], str | None], str]
"""From samples at 16 kHz and a language to a text."""

BATCH = 8
"""Windows at once, where a library takes several of one recording."""


@frozen
class Library:
    """``imports`` stand in memory before ``load`` reads a weight.

    ``threads`` says that one model may be asked from several threads; else callers take turns.
    """

    imports: tuple[str, ...]
    load: Callable[[Weights], Hear]
    threads: bool


def _transformers(dtype: str, weights: Weights) -> Hear:
    """The pipeline with windows in batches, as the model's card has it for long audio."""
    import torch
    from transformers import pipeline

    asr = pipeline(
        "automatic-speech-recognition",
        model=str(weights.transformers),
        dtype=getattr(torch, dtype),
        device="cpu",
        chunk_length_s=30,
        batch_size=BATCH,
    )

    def hear(samples: npt.NDArray[np.float32], language: str | None) -> str:
        spoken = {"language": language, "task": "transcribe"}
        return str(asr({"raw": samples, "sampling_rate": 16_000}, generate_kwargs=spoken)["text"])

    return hear


def _openai_whisper(weights: Weights) -> Hear:
    import whisper

    model = whisper.load_model(str(weights.openai), device="cpu")
    # It warns on every call that a CPU has no half precision, unless told not to try.
    return lambda samples, language: str(model.transcribe(samples, language=language, fp16=False)["text"])


def _faster_whisper(compute_type: str, batched: bool, weights: Weights) -> Hear:
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    model = WhisperModel(str(weights.ctranslate2), device="cpu", compute_type=compute_type)
    options: dict[str, Any] = {"batch_size": BATCH} if batched else {}
    asr = BatchedInferencePipeline(model) if batched else model

    def hear(samples: npt.NDArray[np.float32], language: str | None) -> str:
        segments, _ = asr.transcribe(samples, language=language, **options)
        return " ".join(segment.text.strip() for segment in segments)

    return hear


LIBRARIES: dict[str, Library] = {
    **{
        f"transformers {dtype}": Library(
            ("torch", "transformers.models.whisper.modeling_whisper"), partial(_transformers, dtype), threads=False
        )
        for dtype in ("bfloat16", "float32")
    },
    "openai-whisper float32": Library(("whisper",), _openai_whisper, threads=False),
    **{
        f"faster-whisper {compute_type}{', batched' if batched else ''}": Library(
            ("faster_whisper",), partial(_faster_whisper, compute_type, batched), threads=True
        )
        for compute_type in ("int8", "float32")
        for batched in (False, True)
    },
}
