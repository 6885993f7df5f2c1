"""``response_format``: what each one needs of a model, and how it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import frozen
from starlette.responses import JSONResponse, PlainTextResponse, Response

from asr_core.formats import covered, holes, to_srt, to_text, to_vtt
from asr_core.serve.bodies import View, diarized_body, json_body, verbose_body
from asr_core.types import Capabilities, Transcript

COVERAGE = "x-asr-coverage"
"""Header that tells of an answer without JSON what ``x_asr`` tells of the others."""


def _object(body: Callable[[Transcript, View], Mapping[str, Any]], transcript: Transcript, view: View) -> Response:
    return JSONResponse(body(transcript, view))


def _written(write: Callable[[Transcript], str], media_type: str, transcript: Transcript, view: View) -> Response:
    return PlainTextResponse(write(transcript), media_type=media_type, headers={COVERAGE: _coverage(transcript)})


def _coverage(transcript: Transcript) -> str:
    """Seconds by what became of them, how often a guard stepped in, and at how many places nothing could be read."""
    seconds = [f"{state}={seconds:.3f}" for state, seconds in covered(transcript).items()]
    unread = [f"holes={number}"] if (number := holes(transcript)) else []
    return ", ".join([*seconds, f"guards={len(transcript.guards)}", *unread])


@frozen
class ResponseFormat:
    """How a transcript is answered.

    ``needs`` names a capability without which a model is not asked, ``timed`` formats show when each segment was said,
    ``granular`` ones what the caller wants times for. ``streamed`` formats may come as events, with ``segments`` among
    them. ``logprobs`` tells whether there is room for those of tokens.
    """

    render: Callable[[Transcript, View], Response]
    media_type: str
    needs: str | None = None
    timed: bool = False
    granular: bool = False
    streamed: bool = False
    segments: bool = False
    logprobs: bool = False

    def is_offered(self, capabilities: Capabilities, stream: bool) -> bool:
        """Whether a model of these ``capabilities`` can answer so."""
        return (self.streamed or not stream) and (self.needs is None or bool(getattr(capabilities, self.needs)))

    def times(self, view: View, capabilities: Capabilities) -> frozenset[str]:
        """What the model is asked to time; one without segment times shows its clips as segments."""
        wanted = view.granularities if self.granular else frozenset({"segment"} if self.timed else ())
        return wanted if capabilities.segment_times else wanted - {"segment"}


_JSON, _TEXT, _VTT = "application/json", "text/plain", "text/vtt"

FORMATS: Mapping[str, ResponseFormat] = {
    "json": ResponseFormat(partial(_object, json_body), _JSON, streamed=True, logprobs=True),
    "text": ResponseFormat(partial(_written, to_text, _TEXT), _TEXT),
    "srt": ResponseFormat(partial(_written, to_srt, _TEXT), _TEXT, needs="segment_times", timed=True),
    "verbose_json": ResponseFormat(partial(_object, verbose_body), _JSON, granular=True),
    "vtt": ResponseFormat(partial(_written, to_vtt, _VTT), _VTT, needs="segment_times", timed=True),
    "diarized_json": ResponseFormat(
        partial(_object, diarized_body), _JSON, needs="speakers", timed=True, streamed=True, segments=True
    ),
}
"""By the name a caller writes."""
