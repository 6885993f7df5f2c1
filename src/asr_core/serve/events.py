"""Server-sent events: an answer that is sent while it is made."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from asr_core.clips import Event
from asr_core.serve.bodies import EventBodies, View
from asr_core.serve.errors import problem_of
from asr_core.serve.presence import while_connected
from asr_core.types import Transcript

MEDIA_TYPE = "text/event-stream"

# The second header: nginx would otherwise hold events back until its buffer is full.
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

Events = AsyncGenerator[Event | Transcript, None]


def frame(event: Mapping[str, Any]) -> bytes:
    """One event as its ``data:`` line.

    In ASCII: some clients split lines at any of Unicode's line ends, and some decode each chunk they get on its own.
    """
    return f"data: {json.dumps(event, allow_nan=False)}\n\n".encode()


class EventStream(StreamingResponse):
    """Sends ``first`` and then ``events``, and stops them as soon as the client leaves."""

    def __init__(self, first: Event | Transcript, events: Events, view: View, request: Request) -> None:
        self._events, self._frames = events, _frames(first, events, EventBodies(view), request)
        super().__init__(self._frames, headers=HEADERS, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        async with aclosing(self._events), aclosing(self._frames):
            await while_connected(receive, self.stream_response(send))


async def _frames(
    first: Event | Transcript, events: Events, bodies: EventBodies, request: Request
) -> AsyncGenerator[bytes, None]:
    yield frame(bodies.of(first))
    try:
        async for event in events:
            yield frame(bodies.of(event))
    except Exception as error:
        # The status is out; an error inside the stream is what the openai client raises as APIError.
        yield frame(problem_of(error, request).body)
