"""From a clip and a request to windows, prompt and budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from tokenizers import Tokenizer
from transformers import Qwen3ASRFeatureExtractor, Qwen3ASRProcessor

from asr_core.checkpoints import Pretrained
from asr_core.errors import AudioTooLongError, CheckpointError, InvalidRequestError
from asr_core.prompts import split_placeholders
from asr_core.types import (
    AudioSpan,
    Checkpoint,
    Clip,
    ClipContext,
    Feature,
    PreparedClip,
    Sampling,
    Tokens,
    TranscriptionRequest,
)
from asr_qwen3 import policy
from asr_qwen3.template import NAMES, Template
from asr_qwen3.windows import Windows

MARKER = "<asr_text>"
"""Stands between the language the model names and what was said."""

STOP = (151643, 151645)
"""``<|endoftext|>`` and ``<|im_end|>``, transformers' default for a configuration that names none."""

MIN_BUDGET, TOKENS_PER_SECOND = 128, 10
"""Bounds on output that other servers of this model use; several times what anybody says in a second."""

WARMER = (0.2, 0.4, 0.6, 0.8)
"""Temperatures of further attempts at a clip that loops."""


@frozen(eq=False)
class Frontend:
    """What one checkpoint turns sound and words into numbers with; ``marker`` are the ids of :data:`MARKER`.

    ``silent`` are the tokens without text. ``languages`` maps the names the model writes, in lower case, to codes.
    """

    extractor: Qwen3ASRFeatureExtractor = field(repr=False)
    windows: Windows
    tokenizer: Tokenizer = field(repr=False)
    template: Template = field(repr=False)
    audio_token: int
    marker: Tokens
    silent: frozenset[int] = field(repr=False)
    stop: frozenset[int]
    context: int
    languages: Mapping[str, str] = field(repr=False)


def prepare_frontend(checkpoint: Checkpoint) -> Frontend:
    """Load the processor and render its template.

    Raises:
        CheckpointError: a file is missing or damaged, or does not go with the others.
    """
    pretrained: Pretrained = checkpoint.config
    directory = pretrained.fetch()
    processor, extractor = _load(directory, policy.audio_token(pretrained.config))
    template = Template.of(processor)
    return Frontend(
        extractor=extractor,
        windows=Windows(
            hop=extractor.hop_length,
            chunk=policy.chunk_frames(pretrained.config),
            window=policy.window_frames(pretrained.config),
            min_samples=extractor.min_length,
        ),
        tokenizer=processor.tokenizer.backend_tokenizer,
        template=template,
        audio_token=processor.audio_token_id,
        marker=template.tokenizer.encode(MARKER),
        silent=frozenset(template.tokenizer.special.values()),
        stop=pretrained.stop_tokens(STOP),
        context=policy.context_tokens(pretrained.config),
        languages={name.lower(): code for code, name in NAMES.items()},
    )


@frozen
class Attempt:
    """How one attempt differs from the others: with the caller's prompt or without, and how warm."""

    prompted: bool
    temperature: float


def attempts(request: TranscriptionRequest) -> tuple[Attempt, ...]:
    """As asked; if that loops, without the prompt that may be why; then warmer unless a temperature was chosen."""
    prompted, chosen = _prompt(request) is not None, request.temperature
    first = Attempt(prompted, chosen or 0.0)
    bare = (Attempt(False, first.temperature),) if prompted else ()
    warmer = WARMER if chosen is None else ()
    return (first, *bare, *(Attempt(False, temperature) for temperature in warmer))


def prepare_clip(frontend: Frontend, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    """Windows as spans, the prompt around their rows, and a forced language as output that is already given.

    What an earlier clip spoke is not forced upon the next: the model detects it again, as speakers may change it.

    Raises:
        AudioTooLongError: its rows leave no room for text in the context of the language model.
        InvalidRequestError: the prompt does.
    """
    attempt = attempts(request)[context.attempt]
    spans = frontend.windows.spans(clip.end_sample - clip.start_sample)
    text = frontend.template.encode(_prompt(request) if attempt.prompted else None)
    given = frontend.template.prefills[request.language] if request.language else ()
    room = _room(frontend, text, given, spans)
    return PreparedClip(
        spans=spans,
        prompt=split_placeholders(tuple(_expanded(frontend, text, spans)), frontend.audio_token, spans),
        given=given,
        stop=frontend.stop,
        language=request.language,
        budget=min(room, max(MIN_BUDGET, math.ceil(TOKENS_PER_SECOND * clip.duration))),
        sampling=Sampling(attempt.temperature, seed=context.attempt),
    )


def extract_features(frontend: Frontend, clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    """Log-mel of shape [mels, frames] per span, cut from that of the whole clip.

    The extractor clamps to 8 below the clip's peak, so a window's features depend on the loudest sound anywhere.
    """
    samples = clip.samples
    extracted = frontend.extractor(
        samples, sampling_rate=clip.rate, padding=True, truncation=False, n_window=0, return_tensors="np"
    )
    mel = extracted.input_features[0]
    bounds = [frontend.windows.bounds(span, len(samples)) for span in spans]
    # Copies: a view would keep the features of the whole clip alive.
    return [Feature(np.array(mel[:, frames]), frames.stop - frames.start) for frames in bounds]


def _prompt(request: TranscriptionRequest) -> str | None:
    return request.prompt if request.prompt and request.prompt.strip() else None


def _room(frontend: Frontend, text: Tokens, given: Tokens, spans: Sequence[AudioSpan]) -> int:
    """Positions left for output."""
    rows = sum(span.tokens for span in spans)
    fixed = rows + len(given) - 1  # the rows stand in place of one placeholder
    if (room := frontend.context - fixed - len(text)) > 0:
        return room
    if fixed + len(frontend.template.encode(None)) < frontend.context:
        raise InvalidRequestError(
            f"the prompt has {len(text)} tokens, which with {rows} of audio leaves no room for text "
            f"in the model's context of {frontend.context}",
            param="prompt",
            layer="frontend",
        )
    raise AudioTooLongError(
        f"the audio has {rows} tokens, which leaves no room for text in the model's context of {frontend.context}",
        layer="native_limit",
    )


def _expanded(frontend: Frontend, text: Tokens, spans: Sequence[AudioSpan]) -> Iterator[int]:
    rows = sum(span.tokens for span in spans)
    for token in text:
        yield from (token,) * (rows if token == frontend.audio_token else 1)


def _load(directory: Path, audio_token: int) -> tuple[Any, Any]:
    """Processor and feature extractor, once they are seen to go with the model."""
    try:
        processor = Qwen3ASRProcessor.from_pretrained(directory, local_files_only=True)
        # By class, whatever the file names: Whisper's has the same settings, but pads and counts otherwise.
        extractor = Qwen3ASRFeatureExtractor.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # transformers, tokenizers and json each have their own tree
        raise CheckpointError(
            f"{directory}: tokenizer or feature extractor cannot be read: {error}; "
            "save them again with processor.save_pretrained()"
        ) from error
    # Without a file transformers makes up an empty tokenizer.
    if processor.audio_token_id != audio_token:
        raise CheckpointError(
            f"{directory}: the tokenizer is another model's: {processor.audio_token} is {processor.audio_token_id}, "
            f"config.json says {audio_token}; tokenizer.json belongs beside config.json"
        )
    if (rate := extractor.sampling_rate) != policy.SAMPLE_RATE:
        raise CheckpointError(f"{directory}: the feature extractor wants {rate} Hz, not {policy.SAMPLE_RATE}")
    return processor, extractor
