"""From a clip and a request to features and prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from tokenizers import Tokenizer
from transformers import MossTranscribeDiarizeProcessor

from asr_core.checkpoints import Pretrained
from asr_core.errors import AudioTooLongError, CheckpointError, InvalidRequestError
from asr_core.prompts import PromptTokenizer, split_placeholders
from asr_core.types import AudioSpan, Clip, Feature, PreparedClip, Tokens, TranscriptionRequest
from asr_moss import policy
from asr_moss.config import SAMPLE_RATE, MossConfig

_NO_AUDIO = np.zeros(1, np.float32)
"""Stands for the audio while a template is rendered, which looks at nothing of it."""


@frozen(eq=False)
class Frontend:
    """Processor and tokenizer of one checkpoint; ``stop`` ends the output, ``silent`` tokens have no text in it."""

    config: MossConfig
    processor: Any = field(repr=False)
    prompts: PromptTokenizer = field(repr=False)
    stop: frozenset[int]
    silent: frozenset[int] = field(repr=False)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the library ``tokenizers``."""
        tokenizer: Tokenizer = self.processor.tokenizer.backend_tokenizer
        return tokenizer

    def render(self, prompt: str | None, keywords: Sequence[str]) -> str:
        """The chat template with one audio placeholder in it."""
        rendered: list[str] = self.processor.apply_transcription_request(
            _NO_AUDIO, prompt=prompt, keywords=list(keywords) or None, tokenize=False
        )
        return rendered[0]


def prepare_frontend(checkpoint: Pretrained) -> Frontend:
    """Load the processor and see that it goes with the model.

    Raises:
        CheckpointError: files are missing or damaged, or disagree with config.json.
    """
    directory, config = checkpoint.fetch(), MossConfig.of(checkpoint.config)
    try:
        processor = MossTranscribeDiarizeProcessor.from_pretrained(directory, local_files_only=True)
        prompts = PromptTokenizer(processor.tokenizer.backend_tokenizer)
        silent = frozenset(prompts.special.values())
        frontend = Frontend(
            config, processor, prompts, checkpoint.stop_tokens(processor.tokenizer.eos_token_id), silent
        )
        rendered = frontend.render(_stand_in(0), ())
    except CheckpointError:
        raise
    except Exception as error:  # from half a dozen libraries, all meaning that these files do not go together
        raise CheckpointError(f"the processor in {directory} cannot be used: {error}") from error
    _check(directory, config, processor)
    if rendered.count(processor.audio_token) != 1 or _stand_in(0) not in rendered:
        raise CheckpointError(f"the chat template in {directory} has no place for one audio and a prompt")
    return frontend


def prepare_clip(frontend: Frontend, clip: Clip, request: TranscriptionRequest) -> PreparedClip:
    """Blocks as spans, and the template with their rows and the time markers between them.

    Raises:
        AudioTooLongError: the audio leaves no room for output in the context.
        InvalidRequestError: the caller's text leaves none.
    """
    spans = plan_blocks(frontend.config, clip.end_sample - clip.start_sample)
    rows = sum(span.tokens for span in spans)
    ids = _prompt(frontend, rows, request)
    room = frontend.config.context - len(ids)
    if room <= 0:
        raise _too_long(frontend, clip, request, rows)
    return PreparedClip(
        spans=spans,
        prompt=split_placeholders(ids, frontend.config.audio_token, spans),
        stop=frontend.stop,
        budget=policy.budget(clip.duration, room),
        sampling=policy.sampling(request.temperature),
    )


def plan_blocks(config: MossConfig, samples: int) -> tuple[AudioSpan, ...]:
    """Consecutive blocks of the encoder's window, the last one shorter; each rounds its rows up on its own."""
    bounds = ((start, min(start + config.block, samples)) for start in range(0, samples, config.block))
    return tuple(
        AudioSpan(start, end, config.rows(config.frames(end - start)), key=f"block:{end - start}")
        for start, end in bounds
    )


def extract_features(frontend: Frontend, clip: Clip, spans: Sequence[AudioSpan]) -> list[Feature]:
    """Log-mel of shape [mels, frames of a block] per span, padded with silence to the whole window.

    One at a time, as the spectrogram of 90 minutes at once takes gigabytes.
    """
    return [_feature(frontend, clip.samples[span.start_sample : span.end_sample]) for span in spans]


def _feature(frontend: Frontend, samples: np.ndarray) -> Feature:
    extractor = frontend.processor.feature_extractor
    # A single sample would be a number to it, and no array; silence is what it pads with itself.
    padded = np.pad(samples, (0, max(0, 2 - len(samples))))
    features = extractor(padded, sampling_rate=SAMPLE_RATE, return_tensors="np").input_features
    return Feature(features[0], length=frontend.config.frames(len(samples)))


def _prompt(frontend: Frontend, rows: int, request: TranscriptionRequest) -> Tokens:
    """Token ids with as many placeholders as there are rows; blank texts count as none."""
    texts = [text if text.strip() else "" for text in (request.prompt or "", *request.keywords)]
    stand_ins = {_stand_in(number): text for number, text in enumerate(texts) if text}
    prompt = _stand_in(0) if texts[0] else None
    rendered = frontend.render(prompt, [name for name in stand_ins if name != prompt])
    audio = frontend.processor.replace_audio_token({"num_audio_tokens": [rows]}, 0)
    return frontend.prompts.encode(rendered.replace(frontend.processor.audio_token, audio), stand_ins)


def _stand_in(number: int) -> str:
    """What a template shows in place of a caller's text: private characters, which no template has of its own."""
    return f"\ue000{number}\ue001"


def _too_long(frontend: Frontend, clip: Clip, request: TranscriptionRequest, rows: int) -> InvalidRequestError:
    context, bare = frontend.config.context, len(_prompt(frontend, rows, TranscriptionRequest()))
    if bare >= context:
        return AudioTooLongError(
            f"the audio lasts {clip.duration:.2f} s, which with the instruction takes {bare} tokens of a context of "
            f"{context} and leaves no room for text: send it in shorter files",
            layer="native_limit",
        )
    param = "prompt" if len(request.prompt or "") >= sum(map(len, request.keywords)) else "keywords"
    return InvalidRequestError(
        f"the audio takes {bare} tokens of a context of {context}, and {param} fills the rest: shorten it",
        param=param,
        layer="frontend",
    )


def _check(directory: Path, config: MossConfig, processor: Any) -> None:
    extractor = processor.feature_extractor
    facts: Mapping[str, tuple[Any, Any]] = {
        "samples of a block": (extractor.n_samples, config.block),
        "samples of a frame": (extractor.hop_length, config.hop),
        "sampling rate": (extractor.sampling_rate, SAMPLE_RATE),
        "mel bins": (extractor.feature_size, config.mels),
        "positions per row": (processor.audio_merge_size, config.merge),
        "rows per second": (processor.audio_tokens_per_second, config.rows_per_second),
        "audio token": (processor.audio_token_id, config.audio_token),
    }
    for what, (theirs, ours) in facts.items():
        if theirs != ours:
            raise CheckpointError(f"{directory}: {what} is {theirs} to the processor and {ours} by config.json")
