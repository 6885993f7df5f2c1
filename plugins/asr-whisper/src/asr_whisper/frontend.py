"""From a clip and a request to features, prompt and rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import field, frozen
from tokenizers import Tokenizer
from transformers.audio_utils import mel_filter_bank

from asr_core.errors import CheckpointError, InvalidRequestError
from asr_core.types import (
    AudioSpan,
    Checkpoint,
    Clip,
    ClipContext,
    Feature,
    PreparedClip,
    Probe,
    Rule,
    Sampling,
    Suppress,
    TranscriptionRequest,
)
from asr_whisper.config import WhisperConfig
from asr_whisper.languages import spoken
from asr_whisper.mel import WIDTH, log_mel
from asr_whisper.policy import BEAM_SIZE, FRAMES_PER_POSITION, HOP, MAX_BEAM_SIZE, SAMPLE_RATE
from asr_whisper.rules import TimestampRule
from asr_whisper.tokenizer import SpecialTokens, Suppression, load_tokenizer
from asr_whisper.window import Window

BEGIN = "begin"
"""Name of the probe at ``<|startoftranscript|>``: no-speech first, then the languages if one is to be detected."""

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The fallback ladder of the original implementation."""

FIRST = ClipContext()
"""Before anything was heard."""


@frozen(eq=False)
class Frontend:
    """Tokenizer, special tokens and mel filters of one checkpoint."""

    config: WhisperConfig
    tokenizer: Tokenizer = field(repr=False)
    special: SpecialTokens
    suppression: Suppression = field(repr=False)
    filters: npt.NDArray[np.float32] = field(repr=False)


def prepare_frontend(checkpoint: Checkpoint) -> Frontend:
    """Load the tokenizer and compute the mel filters the checkpoint's dimensions ask for.

    Raises:
        CheckpointError: no tokenizer, or one that lacks a language the checkpoint promises.
    """
    config: WhisperConfig = checkpoint.config
    tokenizer = load_tokenizer(checkpoint)
    filters = mel_filter_bank(
        num_frequency_bins=WIDTH // 2 + 1,
        num_mel_filters=config.dims.mels,
        min_frequency=0.0,
        max_frequency=SAMPLE_RATE / 2,
        sampling_rate=SAMPLE_RATE,
        norm="slaney",
        mel_scale="slaney",
    )
    special = SpecialTokens.of(tokenizer, multilingual=config.multilingual)
    if lacking := set(spoken(config)) - special.languages.keys() if config.multilingual else ():
        raise CheckpointError(f"{checkpoint.reference}: the tokenizer has no token for {', '.join(sorted(lacking))}")
    return Frontend(config, tokenizer, special, Suppression.of(config, tokenizer), filters.astype(np.float32))


def prepare_clip(frontend: Frontend, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    """Ask for the language first if nobody gave one; then the prompt, rules and temperature of this attempt."""
    language, candidates = _language(frontend, request, context), _candidates(frontend, request, context)
    samples = clip.end_sample - clip.start_sample
    window = Window.of_frames(samples // HOP, frontend.config.dims.audio_context)
    span = AudioSpan(0, samples, tokens=window.rows)
    timed = "segment" in request.times
    temperature = temperatures(request)[context.attempt]
    prompt = (*previous_text(frontend, request, context), *_task(frontend, request, language, timed))
    return PreparedClip(
        spans=(span,),
        prompt=(prompt,),
        cross=0,
        stop=frozenset({frontend.special.eot}),
        language=language,
        budget=frontend.config.dims.text_context - len(prompt),
        # As in the original, a fallback draws: what several texts agreed on and is bad would come again.
        sampling=Sampling(temperature, seed=context.attempt, beam_size=1 if temperature else beam_size(request)),
        rules=_rules(frontend, timed),
        probes=(begin(frontend, candidates),) if candidates else (),
    )


def beam_size(request: TranscriptionRequest) -> int:
    """How many texts to follow: one, unless the caller wants more.

    Raises:
        InvalidRequestError: too many or too few.
    """
    size: int = request.options.get(BEAM_SIZE.name, 1)
    if not 1 <= size <= MAX_BEAM_SIZE:
        message = f"{BEAM_SIZE.name} is {size}, must be 1 to {MAX_BEAM_SIZE}"
        raise InvalidRequestError(message, param=BEAM_SIZE.name, layer="frontend")
    return size


def temperatures(request: TranscriptionRequest) -> Sequence[float]:
    """One per attempt: the ladder, unless the caller chose a temperature above 0."""
    return (request.temperature,) if request.temperature else TEMPERATURES


def extract_features(frontend: Frontend, clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    """Log-mel of shape [mels, 3000] per span, padded with silence to the whole window."""
    return [_feature(frontend, clip.samples[span.start_sample : span.end_sample]) for span in spans]


def _feature(frontend: Frontend, samples: np.ndarray) -> Feature:
    frames = frontend.config.dims.audio_context * FRAMES_PER_POSITION
    return Feature(log_mel(samples, frontend.filters, frames), length=len(samples) // HOP)


def _language(frontend: Frontend, request: TranscriptionRequest, context: ClipContext) -> str | None:
    if not frontend.config.multilingual:
        return "en"
    known = request.language or context.language
    if known or BEGIN not in context.probe_results:
        return known
    logprobs = context.probe_results[BEGIN][1:]
    return _candidates(frontend, request, context)[int(np.argmax(logprobs))]


def _candidates(frontend: Frontend, request: TranscriptionRequest, context: ClipContext) -> Sequence[str]:
    """The languages to choose from, none if it is known already."""
    if request.language or context.language:
        return ()
    return request.languages or tuple(frontend.special.languages)


def begin(frontend: Frontend, candidates: Sequence[str] = ()) -> Probe:
    """What the model makes of the sound before it is told anything: whether it is speech, and in which language."""
    special = frontend.special
    languages = (special.languages[code] for code in candidates)
    return Probe(BEGIN, prompt=((special.sot,),), token_ids=(special.no_speech, *languages))


def _task(frontend: Frontend, request: TranscriptionRequest, language: str | None, timed: bool) -> list[int]:
    special = frontend.special
    ids = [special.sot]
    if frontend.config.multilingual and language is not None:
        ids += [special.languages[language], special.translate if request.task == "translate" else special.transcribe]
    return ids if timed else [*ids, special.no_timestamps]


def previous_text(frontend: Frontend, request: TranscriptionRequest, context: ClipContext = FIRST) -> list[int]:
    """The caller's prompt and then the clip before, as text that came before; the end is nearest to the audio and kept.

    Raises:
        InvalidRequestError: the prompt holds a special token.
    """
    ids = _encode(frontend, request.prompt or "")
    if any(token >= frontend.special.eot for token in ids):
        raise InvalidRequestError("prompt contains a special token of the model", param="prompt", layer="frontend")
    # What the model itself spelled like one was none.
    ids += [token for token in _encode(frontend, context.previous_text) if token < frontend.special.eot]
    room = frontend.config.dims.text_context // 2 - 1
    return [frontend.special.previous, *ids[-room:]] if ids else []


def _encode(frontend: Frontend, text: str) -> list[int]:
    ids: list[int] = frontend.tokenizer.encode(" " + text.strip(), add_special_tokens=False).ids if text.strip() else []
    return ids


def _rules(frontend: Frontend, timed: bool) -> tuple[Rule, ...]:
    special, never = frontend.special, frontend.suppression
    rules: tuple[Rule, ...] = (Suppress(never.at_begin, at_begin=True), Suppress(never.always))
    return (*rules, TimestampRule(special.timestamp_begin, special.eot)) if timed else rules
