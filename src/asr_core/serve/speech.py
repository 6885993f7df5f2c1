"""POST a recording, get its text: every speech route is this one with another task."""

from __future__ import annotations

from functools import partial

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from asr_core.pipeline import ReadAudio, stream, transcribe
from asr_core.serve.call import Call, read_call
from asr_core.serve.catalog import Catalog
from asr_core.serve.endpoint import ENDPOINTS
from asr_core.serve.events import EventStream
from asr_core.serve.exchange import Exchange
from asr_core.serve.form import read_form
from asr_core.serve.presence import while_connected
from asr_core.serve.traffic import Traffic
from asr_core.types import Task, UploadLimits


@frozen(eq=False)
class Speech:
    """The route for ``task`` over the models of one server."""

    catalog: Catalog
    limits: UploadLimits
    traffic: Traffic
    task: Task

    async def create(self, request: Request) -> Response:
        """Answer one upload; whatever can be refused is refused before its audio is decoded."""
        self.traffic.admit()
        async with read_form(request) as form:
            call = read_call(form, ENDPOINTS[self.task], self.catalog, self.limits)
            exchange: Exchange = request.state.exchange
            exchange.model = call.served.card.name
            read = partial(exchange.sound.read, call.file)
            return await (_streamed if call.stream else _whole)(request, call, read)


async def _whole(request: Request, call: Call, read: ReadAudio) -> Response:
    transcript = await while_connected(request.receive, transcribe(call.served, read, call.request))
    return call.format.render(request.state.exchange.heard(transcript), call.view)


async def _streamed(request: Request, call: Call, read: ReadAudio) -> Response:
    """Events from the first on; until it is there, an error is an answer with a status of its own."""
    events = request.state.exchange.watched(stream(call.served, read, call.request, segments=call.format.segments))
    try:
        first = await while_connected(request.receive, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events, call.view, request)
