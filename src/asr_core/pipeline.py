"""One request from sound to transcript; command line, Python and HTTP all call only this."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

from asr_core.admission import admit
from asr_core.clip import ClipTranscript
from asr_core.clips import Clips, Event
from asr_core.loading import ServedModel
from asr_core.longform import Part, join_texts, split
from asr_core.runtime.fold import shift
from asr_core.runtime.stream import TextDelta
from asr_core.types import Stretch, Transcript, TranscriptionRequest, Usage, Waveform, Word
from asr_core.words import keep_in_order

ReadAudio = Callable[[int], Awaitable[Waveform]]
"""Decodes the source, under the caller's limits, at the sample rate it is given; cancelling it ends the decoding."""

Progress = Callable[[float, float], None]
"""Told, whenever part of the audio is done, how many of how many seconds are."""


async def transcribe(
    served: ServedModel,
    read: ReadAudio,
    request: TranscriptionRequest,
    progress: Progress = lambda done, of: None,
) -> Transcript:
    """Transcribe what ``read`` decodes; leaving early (cancellation) frees everything within one token.

    Raises:
        InvalidRequestError: the request or its audio cannot be served; everything but the audio is checked first.
        PluginError, EngineError: the model failed.
    """
    return await _transcribe(served, read, request, None, progress)


async def stream(
    served: ServedModel, read: ReadAudio, request: TranscriptionRequest, *, segments: bool = False
) -> AsyncGenerator[Event | Transcript, None]:
    """The text as it is committed, then the transcript that :func:`transcribe` returns, to which the deltas add up.

    With ``segments`` its segments come too, each behind its text: one by one where the model commits them so, else at
    the end of their clip.

    The first item or error comes when there is something to tell, after all that can be refused was refused. Closing
    the iterator frees everything within one token.

    Raises:
        AsrError: see :func:`transcribe`; perhaps after some deltas.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()

    def send(event: Event) -> None:
        if segments or isinstance(event, TextDelta):
            events.put_nowait(event)

    work = asyncio.create_task(_transcribe(served, read, request, send, lambda done, of: None))
    work.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _transcribe(
    served: ServedModel,
    read: ReadAudio,
    request: TranscriptionRequest,
    send: Callable[[Event], None] | None,
    progress: Progress,
) -> Transcript:
    request = admit(served.card.name, served.capabilities, request)
    await asyncio.to_thread(served.hooks.check_request, served.model, request)
    waveform = await read(served.native_limit.sample_rate)
    timed = "segment" in request.times
    parts = await asyncio.to_thread(split, waveform, served.splitting, request.server_vad, timed=timed)
    done = sum(part.end_sample - part.start_sample for part in parts if not part.speech)

    def count(part: Part) -> None:
        nonlocal done
        done += part.end_sample - part.start_sample
        progress(done / waveform.rate, waveform.duration)

    spoken = [part for part in parts if part.speech]
    clips = Clips(served, waveform, spoken, request, send or (lambda event: None), count, listening=send is not None)
    await clips.run()
    return _stitch(waveform, parts, clips.results, request)


def _stitch(
    waveform: Waveform,
    parts: Sequence[Part],
    results: Sequence[Sequence[ClipTranscript]],
    request: TranscriptionRequest,
) -> Transcript:
    done = [result for clip in results for result in clip]
    languages = _languages(done)
    return Transcript(
        text=join_texts(part.text for part in done),
        language=request.language or max(languages, key=languages.__getitem__, default=None),
        duration=waveform.duration,
        segments=tuple(segment for part in done for segment in part.segments),
        words=keep_in_order((word for part in done for word in _words(part)), round(1000 * waveform.duration)),
        tokens=tuple(token for part in done for token in part.tokens),
        coverage=tuple(_coverage(waveform, parts, results)),
        guards=tuple(guard for part in done for guard in part.guards),
        usage=sum((part.usage for part in done), Usage()),
        languages=tuple(languages) or ((request.language,) if request.language else ()),
        stable_speakers=not any(segment.speaker for part in done[1:] for segment in part.segments),
    )


def _words(part: ClipTranscript) -> Iterator[Word]:
    start_ms, end_ms = part.clip.milliseconds(0), part.heard.milliseconds(len(part.heard.samples))
    return (shift(word, start_ms, end_ms) for word in part.words)


def _languages(done: Sequence[ClipTranscript]) -> Counter[str]:
    """Samples in which each language is spoken, in the order in which they first are."""
    languages: Counter[str] = Counter()
    for part in done:
        if part.language and part.text:
            languages[part.language] += part.clip.end_sample - part.clip.start_sample
    return languages


def _coverage(
    waveform: Waveform, parts: Sequence[Part], results: Sequence[Sequence[ClipTranscript]]
) -> Iterator[Stretch]:
    heard = iter(results)
    for part in parts:
        if part.speech:
            for result in next(heard):
                yield from result.stretches
        else:
            yield Stretch(part.start_sample, part.end_sample, "silent", "skipped")
    for hole in waveform.holes:
        yield Stretch(hole.start_sample, hole.start_sample, "lost", hole.reason)
