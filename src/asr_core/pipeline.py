"""One request from sound to transcript; command line, Python and HTTP all call only this."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from uuid import uuid4

from attrs import define

from asr_core.admission import admit
from asr_core.clip import ClipTranscript, ClipTranscription
from asr_core.errors import AudioTooLongError, PluginError
from asr_core.loading import ServedModel
from asr_core.longform import join_texts
from asr_core.runtime.fold import shift
from asr_core.runtime.stream import Deltas, TextDelta
from asr_core.types import Segment, Stretch, Transcript, TranscriptionRequest, Usage, Waveform

MAX_RESUMED = 64
"""Times one request may hear the rest of a clip again: a plugin that asks for more makes no headway."""

ReadAudio = Callable[[int], Awaitable[Waveform]]
"""Decodes the source, under the caller's limits, at the sample rate it is given; cancelling it ends the decoding."""


async def transcribe(served: ServedModel, read: ReadAudio, request: TranscriptionRequest) -> Transcript:
    """Transcribe what ``read`` decodes; leaving early (cancellation) frees everything within one token.

    Raises:
        InvalidRequestError: the request or its audio cannot be served; everything but the audio is checked first.
        PluginError, EngineError: the model failed.
    """
    return await _transcribe(served, read, request, lambda event: None)


Event = TextDelta | Segment
"""What can be told while work goes on: text, and each segment once it is complete."""


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

    work = asyncio.create_task(_transcribe(served, read, request, send))
    work.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _transcribe(
    served: ServedModel, read: ReadAudio, request: TranscriptionRequest, send: Callable[[Event], None]
) -> Transcript:
    request = admit(served.card.name, served.capabilities, request)
    await asyncio.to_thread(served.hooks.check_request, served.model, request)
    waveform = await read(served.native_limit.sample_rate)
    _check_length(served, waveform)
    return await _clips(served, waveform, request, send)


async def _clips(
    served: ServedModel, waveform: Waveform, request: TranscriptionRequest, send: Callable[[Event], None]
) -> Transcript:
    # Every request is a caller of its own, so the clips of a long one never starve short ones.
    deltas, caller = Deltas(send), uuid4().hex
    duration_ms = round(1000 * waveform.duration)
    waiting = deque([waveform.clip()])
    done: list[ClipTranscript] = []
    language = request.language
    while waiting:
        clip = waiting.popleft()
        progress = _Progress(send, clip.milliseconds(0), duration_ms)
        result = await ClipTranscription(served, clip, request, language, caller, deltas.extend, progress.tell).run()
        deltas.end_clip()
        progress.tell(result.segments[progress.told :])
        done.append(result)
        language = language or result.language
        if result.consumed_to is not None:
            if len(done) > MAX_RESUMED:
                raise PluginError(f"{served.hooks.owner}: a clip was resumed {MAX_RESUMED} times")
            waiting.appendleft(waveform.clip(clip.start_sample + result.consumed_to, clip.end_sample))
    return _stitch(waveform, done, language)


@define(eq=False)
class _Progress:
    """Tells the segments of one clip once each, on the clock of the whole audio."""

    send: Callable[[Event], None]
    start_ms: int
    duration_ms: int
    told: int = 0

    def tell(self, segments: Sequence[Segment]) -> None:
        self.told += len(segments)
        for segment in segments:
            self.send(shift(segment, self.start_ms, self.duration_ms))


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
        words=tuple(shift(word, part.clip.milliseconds(0), duration_ms) for part in done for word in part.words),
        tokens=tuple(token for part in done for token in part.tokens),
        coverage=(*(part.stretch for part in done), *lost),
        guards=tuple(guard for part in done for guard in part.guards),
        usage=sum((part.usage for part in done), Usage()),
    )
