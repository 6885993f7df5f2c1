"""Is the output good enough? Thresholds are the original implementation's."""

from __future__ import annotations

import math
import zlib

from asr_core.types import (
    Accept,
    Ask,
    ClipContext,
    ClipOutput,
    NoSpeech,
    PreparedClip,
    Retry,
    TranscriptionRequest,
    Verdict,
)
from asr_whisper.frontend import BEGIN, Frontend, begin, temperatures
from asr_whisper.policy import FRAMES_PER_POSITION, HOP, SAMPLE_RATE

MIN_MEAN_LOGPROB = -1.0
MAX_COMPRESSION_RATIO = 2.4
MAX_NO_SPEECH = 0.6

LEAST_REST_S = 0.5
"""A shorter rest is the pause that the clip was cut in, or a syllable. The original hears it with what follows; heard
alone, the base model made 40 words of one of 0.47 s, while it got all of 0.82 s and more right."""


def review_output(
    frontend: Frontend,
    output: ClipOutput,
    prepared: PreparedClip,
    request: TranscriptionRequest,
    context: ClipContext,
) -> Verdict:
    """Silence if the model heard none and is unsure; a warmer retry while there is a reason and a temperature left.

    Whether anybody speaks is asked of the model where it is unsure or segments will tell it.
    """
    unsure, told = output.mean_logprob < MIN_MEAN_LOGPROB, "segment" in request.times
    if (unsure or told) and BEGIN not in context.probe_results:
        return Ask((begin(frontend),))
    no_speech = math.exp(context.probe_results[BEGIN][0]) if unsure or told else 0.0
    if unsure and no_speech > MAX_NO_SPEECH:
        return NoSpeech()
    if context.attempt + 1 < len(temperatures(request)):
        if (ratio := compression_ratio(output.text)) > MAX_COMPRESSION_RATIO:
            return Retry(f"repeats itself (compression ratio {ratio:.1f})")
        if unsure:
            return Retry(f"unsure (mean log-probability {output.mean_logprob:.2f})")
    return Accept(consumed(frontend, output, prepared), no_speech if told else None)


def compression_ratio(text: str) -> float:
    """Bytes of the text over bytes of its zlib compression; loops compress well."""
    encoded = text.encode()
    return len(encoded) / len(zlib.compress(encoded))


def consumed(frontend: Frontend, output: ClipOutput, prepared: PreparedClip) -> int | None:
    """Samples up to the end of the last segment when another was opened after it and not filled.

    What that one was opened for is still to be heard, and so is what lies between the two marks, as in the original,
    if it is long enough to be heard alone.
    """
    begin = frontend.special.timestamp_begin
    tokens = [token for token in output.tokens if token not in prepared.stop]
    if len(tokens) < 2 or min(tokens[-2:]) < begin:
        return None
    samples = (tokens[-2] - begin) * FRAMES_PER_POSITION * HOP
    rest = prepared.spans[0].end_sample - samples
    return samples if samples > 0 and rest >= LEAST_REST_S * SAMPLE_RATE else None
