"""What sets one speech route apart from another, as values."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from asr_core.serve.fields import FIELDS, Field
from asr_core.types import Task


@frozen
class Endpoint:
    """A route that answers an upload with its text.

    ``fields`` and ``formats`` are those OpenAI documents for it, the first format being what a caller gets who names
    none. ``language`` is the English name of the language every answer is in, None where it is the speaker's.
    """

    task: Task
    path: str
    fields: Mapping[str, Field]
    formats: tuple[str, ...]
    language: str | None = None


def _fields(*names: str) -> Mapping[str, Field]:
    return {name: FIELDS[name] for name in names}


_WRITTEN = ("json", "text", "srt", "verbose_json", "vtt")

ENDPOINTS: Mapping[Task, Endpoint] = {
    endpoint.task: endpoint
    for endpoint in (
        Endpoint("transcribe", "/v1/audio/transcriptions", FIELDS, (*_WRITTEN, "diarized_json")),
        Endpoint(
            "translate",
            "/v1/audio/translations",
            _fields("file", "model", "prompt", "response_format", "temperature"),
            _WRITTEN,
            language="english",
        ),
    )
}
"""By what their requests ask of the model."""
