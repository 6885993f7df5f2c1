"""The field ``chunking_strategy``: a word, an object in brackets as OpenAI's client sends it, or the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import FormData

from asr_core.errors import InvalidRequestError
from asr_core.serve.fields import Field
from asr_core.serve.form import FIELD_SHOWN
from asr_core.types import ServerVad

NAME = "chunking_strategy"
AUTO = "auto"
SERVER_VAD = "server_vad"

MAX_MS = 3_600_000
"""OpenAI documents no upper bound; an hour is beyond any use."""

SETTINGS: Mapping[str, Field] = {
    field.name.removeprefix(NAME)[1:-1]: field
    for field in (
        Field(f"{NAME}[type]", "What cuts.", choices=(SERVER_VAD,)),
        Field(
            f"{NAME}[prefix_padding_ms]",
            "Sound to keep before speech, in milliseconds.",
            "integer",
            low=0,
            high=MAX_MS,
        ),
        Field(
            f"{NAME}[silence_duration_ms]", "Silence that ends speech, in milliseconds.", "integer", low=0, high=MAX_MS
        ),
        Field(f"{NAME}[threshold]", "How sure of speech to be.", "number", low=0.0, high=1.0),
    )
}
"""What an object may hold, with OpenAI's types; the members but ``type`` are those of ServerVad."""


def read_chunking(form: FormData) -> ServerVad | None:
    """None leaves it to the model's policy: ``auto``, or nothing at all.

    Raises:
        InvalidRequestError: the field is repeated, no object, or holds what such an object cannot.
    """
    words = [value for value in form.getlist(NAME) if value]
    settings = [(key, value) for key, value in form.multi_items() if key.startswith(f"{NAME}[") and value]
    if len(words) + bool(settings) > 1:
        raise InvalidRequestError(f"{NAME} is given more than once", param=NAME)
    if settings:
        return _server_vad([(key.removeprefix(NAME), value) for key, value in settings])
    if words and words != [AUTO]:
        return _server_vad([(f"[{key}]", _text(value)) for key, value in _members(words[0])])
    return None


def _server_vad(settings: Sequence[tuple[str, Any]]) -> ServerVad:
    values: dict[str, Any] = {}
    for bracketed, value in settings:
        field, name = _setting(bracketed), bracketed[1:-1]
        if name in values:
            raise InvalidRequestError(f"{field.name} is given more than once", param=field.name)
        if not isinstance(value, str):
            raise InvalidRequestError(f"{field.name} must be text, not a file", param=field.name)
        values[name] = field.read(value)
    if values.pop("type", None) is None:
        raise InvalidRequestError(f"{NAME} must be {AUTO!r} or have a type", param=NAME)
    return ServerVad(**values)


def _setting(bracketed: str) -> Field:
    field = SETTINGS.get(bracketed[1:-1])
    if field is None or bracketed != field.name.removeprefix(NAME):
        shown = f"{NAME}{bracketed}"[:FIELD_SHOWN]
        raise InvalidRequestError(f"Unknown parameter: {shown!r}", param=shown, code="unknown_parameter")
    return field


def _members(word: Any) -> tuple[tuple[str, Any], ...]:
    """Those of the object that ``word`` is in JSON, repeated ones too."""
    if not isinstance(word, str):
        raise InvalidRequestError(f"{NAME} must be text, not a file", param=NAME)
    try:
        parsed = json.loads(word, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, tuple):
        raise InvalidRequestError(f"{NAME} must be {AUTO!r} or an object, not {word[:FIELD_SHOWN]!r}", param=NAME)
    return parsed


def _text(value: Any) -> str:
    """A JSON value as a form would spell it; what holds others, perhaps too deep to be written, no setting takes."""
    if isinstance(value, list | tuple):
        return "[...]"
    return value if isinstance(value, str) else json.dumps(value)
