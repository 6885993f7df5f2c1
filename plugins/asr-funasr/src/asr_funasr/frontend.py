"""From a clip and a request to features and a prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import field, frozen
from tokenizers import Tokenizer

from asr_core.checkpoints import Pretrained
from asr_core.errors import AudioTooLongError, AudioTooShortError, CheckpointError, InvalidRequestError
from asr_core.prompts import PromptTokenizer, split_placeholders
from asr_core.types import (
    AudioSpan,
    Clip,
    ClipContext,
    Feature,
    PreparedClip,
    Sampling,
    Tokens,
    TranscriptionRequest,
)
from asr_funasr.frames import Frames
from asr_funasr.policy import context_tokens
from asr_funasr.template import STAND_IN

AUDIO_TOKEN_ID = 151_646
"""``<|object_ref_start|>`` in the published vocabulary, transformers' default."""

TOKENS_PER_30_S = 200
"""FunASR's own bound on the output for 30 s of sound."""

MIN_BUDGET = 16
"""Tokens that the shortest sound may have."""


@frozen(eq=False)
class Frontend:
    """Processor, tokenizer and the numbers of one checkpoint; ``audio_token_id`` is the placeholder."""

    processor: Any = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    prompts: PromptTokenizer = field(repr=False)
    frames: Frames
    context: int
    audio_token_id: int
    stop: frozenset[int]


def prepare_frontend(checkpoint: Pretrained) -> Frontend:
    """Load the processor.

    Raises:
        CheckpointError: torchaudio cannot be imported, the processor not be loaded, or it does not fit the model.
    """
    processor = _load_processor(checkpoint.fetch())
    tokenizer = processor.tokenizer.backend_tokenizer
    frontend = Frontend(
        processor,
        tokenizer,
        PromptTokenizer(tokenizer),
        Frames.of(processor.feature_extractor.to_dict()),
        context_tokens(checkpoint),
        checkpoint.config.get("audio_token_id", AUDIO_TOKEN_ID),
        checkpoint.stop_tokens(processor.tokenizer.eos_token_id),
    )
    if prompt_ids(frontend, TranscriptionRequest()).count(frontend.audio_token_id) != 1:
        raise CheckpointError(
            f"{checkpoint.directory or checkpoint.repository}: the chat template does not place the audio once, "
            f"by token {frontend.audio_token_id}"
        )
    return frontend


def prepare_clip(frontend: Frontend, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    """One span, one prompt around it.

    Raises:
        AudioTooShortError: less than a frame.
        AudioTooLongError: the sound fills the context.
        InvalidRequestError: the caller's text does.
    """
    samples = clip.end_sample - clip.start_sample
    rows = frontend.frames.rows(samples)
    if not rows:
        raise AudioTooShortError(
            f"the audio has {samples} samples, the model hears frames of {frontend.frames.window}", layer="frontend"
        )
    span = AudioSpan(0, samples, tokens=rows, cost=rows)
    ids = prompt_ids(frontend, request)
    room = _room(frontend, request, ids, rows)
    at = ids.index(frontend.audio_token_id)
    placed = (*ids[:at], *(frontend.audio_token_id,) * rows, *ids[at + 1 :])
    return PreparedClip(
        spans=(span,),
        prompt=split_placeholders(placed, frontend.audio_token_id, (span,)),
        stop=frontend.stop,
        language=request.language or context.language,
        budget=min(room, max(MIN_BUDGET, math.ceil(TOKENS_PER_30_S * clip.duration / 30))),
        sampling=Sampling(temperature=request.temperature or 0.0),
    )


def extract_features(frontend: Frontend, clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    """Stacked filterbanks of shape [rows, mel bins x frames stacked] per span."""
    return [_feature(frontend, clip, span) for span in spans]


def prompt_ids(frontend: Frontend, request: TranscriptionRequest) -> Tokens:
    """The processor's prompt with a single placeholder; white space around the caller's texts is no part of them."""
    prompt = (request.prompt or "").strip()
    keywords = [keyword.strip() for keyword in request.keywords if keyword.strip()]
    texts = [prompt, *keywords]
    names = [STAND_IN.format(number) for number in range(len(texts))]
    itn: Mapping[str, Any] = {"itn": request.options["itn"]} if "itn" in request.options else {}
    (rendered,) = frontend.processor.apply_transcription_request(
        "clip",  # a file that nothing opens
        language=request.language,
        prompt=names[0] if prompt else None,
        keywords=names[1:] or None,
        tokenize=False,
        **itn,
    )
    return frontend.prompts.encode(rendered, dict(zip(names, texts, strict=True)))


def _feature(frontend: Frontend, clip: Clip, span: AudioSpan) -> Feature:
    samples = clip.samples[span.start_sample : span.end_sample].copy()  # torch warns of arrays it may not write to
    features = frontend.processor.feature_extractor(samples, sampling_rate=clip.rate).input_features[0].numpy()
    return Feature(features, length=len(features))


def _room(frontend: Frontend, request: TranscriptionRequest, ids: Tokens, rows: int) -> int:
    """Positions left for the output."""
    room = frontend.context - (len(ids) - 1 + rows)
    if room > 0:
        return room
    bare = len(prompt_ids(frontend, TranscriptionRequest(language=request.language)))
    if bare - 1 + rows >= frontend.context:
        raise AudioTooLongError(
            f"the audio takes {rows} of the {frontend.context} positions of the model's context: no room for text",
            layer="native_limit",
        )
    longest = max((request.prompt or "", "prompt"), ("".join(request.keywords), "keywords"), key=lambda x: len(x[0]))
    raise InvalidRequestError(
        f"{longest[1]} and audio take {len(ids) - 1 + rows} positions of the model's {frontend.context}: shorten it",
        param=longest[1],
        layer="frontend",
    )


def _load_processor(directory: Path) -> Any:
    try:
        import_module("torchaudio.compliance.kaldi")
    except (ImportError, OSError) as error:
        raise CheckpointError(
            "Fun-ASR-Nano's features need torchaudio, which cannot be imported here: install the build that matches "
            f"torch, from the index torch came from, e.g. https://download.pytorch.org/whl/cpu ({error})"
        ) from error
    from transformers import FunAsrNanoProcessor

    try:
        return FunAsrNanoProcessor.from_pretrained(directory, local_files_only=True)
    except Exception as error:
        # transformers, tokenizers and the JSON parser each have their own tree
        raise CheckpointError(
            f"the processor in {directory} cannot be loaded, save it beside the model with save_pretrained(): {error}"
        ) from error
