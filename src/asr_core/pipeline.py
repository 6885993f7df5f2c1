"""One request from sound to transcript; command line, Python and HTTP all call only this."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from asr_core import audio
from asr_core.admission import check_request
from asr_core.audio import AudioSource
from asr_core.clip import ClipTranscript, ClipTranscription
from asr_core.errors import AudioTooLongError
from asr_core.loading import ServedModel
from asr_core.longform import join_texts
from asr_core.runtime.fold import shift
from asr_core.types import Stretch, Transcript, TranscriptionRequest, UploadLimits, Waveform


async def transcribe(
    served: ServedModel, source: AudioSource, request: TranscriptionRequest, limits: UploadLimits
) -> Transcript:
    """Transcribe the audio in ``source``; leaving early (cancellation) frees everything within one token.

    Raises:
        InvalidRequestError: the request or its audio cannot be served; everything but the audio is checked first.
        PluginError, EngineError: the model failed.
    """
    check_request(served.card.name, served.capabilities, request)
    waveform = await asyncio.to_thread(audio.load, source, served.native_limit.sample_rate, limits)
    return await transcribe_waveform(served, waveform, request)


async def transcribe_waveform(served: ServedModel, waveform: Waveform, request: TranscriptionRequest) -> Transcript:
    """Transcribe decoded audio, at the model's own rate, for a request that was checked."""
    _check_length(served, waveform)
    waiting = deque([waveform.clip()])
    done: list[ClipTranscript] = []
    language = request.language
    while waiting:
        clip = waiting.popleft()
        result = await ClipTranscription(served, clip, request, language).run()
        done.append(result)
        language = language or result.language
        if result.consumed_to is not None:
            waiting.appendleft(waveform.clip(clip.start_sample + result.consumed_to, clip.end_sample))
    return _stitch(waveform, done, language)


def _check_length(served: ServedModel, waveform: Waveform) -> None:
    limit = served.native_limit
    if limit.seconds is not None and waveform.duration > limit.seconds:
        source = limit.sources.get("seconds", "the model")
        raise AudioTooLongError(
            f"the audio lasts {waveform.duration:.2f} s; model {served.card.name!r} takes {limit.seconds:g} s at once "
            f"({source}) and longer audio is not split yet: send it in shorter files",
            layer="native_limit",
        )


def _stitch(waveform: Waveform, done: Sequence[ClipTranscript], language: str | None) -> Transcript:
    duration_ms = round(1000 * waveform.duration)
    lost = [Stretch(hole.start_sample, hole.start_sample, "lost", hole.reason) for hole in waveform.holes]
    return Transcript(
        text=join_texts(part.text for part in done),
        language=language,
        duration=waveform.duration,
        segments=tuple(
            shift(segment, part.clip.milliseconds(0), duration_ms) for part in done for segment in part.segments
        ),
        coverage=(*(part.stretch for part in done), *lost),
        guards=tuple(guard for part in done for guard in part.guards),
    )
