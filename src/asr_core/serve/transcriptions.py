"""POST /v1/audio/transcriptions."""

from __future__ import annotations

from functools import partial

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from asr_core import audio
from asr_core.pipeline import ReadAudio, stream, transcribe
from asr_core.serve.catalog import Catalog
from asr_core.serve.events import EventStream
from asr_core.serve.fields import Call, read_call
from asr_core.serve.form import read_form
from asr_core.serve.presence import while_connected
from asr_core.serve.traffic import Traffic
from asr_core.types import UploadLimits


@frozen(eq=False)
class Transcriptions:
    """The route over the models of one server."""

    catalog: Catalog
    limits: UploadLimits
    traffic: Traffic

    async def create(self, request: Request) -> Response:
        """Transcribe one upload; whatever can be refused is refused before its audio is decoded."""
        self.traffic.admit()
        async with read_form(request) as form:
            call = read_call(form, self.catalog, self.limits)
            read = partial(audio.load, call.file, limits=self.limits)
            return await (_streamed if call.stream else _whole)(request, call, read)


async def _whole(request: Request, call: Call, read: ReadAudio) -> Response:
    transcript = await while_connected(request.receive, transcribe(call.served, read, call.request))
    return call.format.render(transcript)


async def _streamed(request: Request, call: Call, read: ReadAudio) -> Response:
    """Events from the first on; until it is there, an error is an answer with a status of its own."""
    events = stream(call.served, read, call.request)
    try:
        first = await while_connected(request.receive, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events, request)
