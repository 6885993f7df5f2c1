"""The field ``chunking_strategy``: a word, an object in brackets as OpenAI's client sends it, or the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import FormData

from asr_core.errors import InvalidRequestError, UnsupportedValueError
from asr_core.serve.fields import Field
from asr_core.serve.form import FIELD_SHOWN

NAME = "chunking_strategy"
AUTO = "auto"
SERVER_VAD = "server_vad"

SETTINGS: Mapping[str, Field] = {
    field.name.removeprefix(NAME)[1:-1]: field
    for field in (
        Field(f"{NAME}[type]", "What cuts.", choices=(SERVER_VAD,)),
        Field(f"{NAME}[prefix_padding_ms]", "Sound to keep before speech, in milliseconds.", "integer", low=0),
        Field(f"{NAME}[silence_duration_ms]", "Silence that ends speech, in milliseconds.", "integer", low=0),
        Field(f"{NAME}[threshold]", "How sure of speech to be.", "number", low=0.0, high=1.0),
    )
}
"""What an object may hold, with OpenAI's types and ranges."""


def check_chunking(form: FormData) -> None:
    """Take ``auto``, and nothing else for now.

    Raises:
        InvalidRequestError: the field is repeated, no object, or holds what such an object cannot.
        UnsupportedValueError: the object is a good one, but nothing cuts by voice activity yet.
    """
    words = [value for value in form.getlist(NAME) if value]
    settings = [(key, value) for key, value in form.multi_items() if key.startswith(f"{NAME}[") and value]
    if len(words) + bool(settings) > 1:
        raise InvalidRequestError(f"{NAME} is given more than once", param=NAME)
    if settings:
        _refuse([(key.removeprefix(NAME), value) for key, value in settings])
    elif words and words != [AUTO]:
        _refuse([(f"[{key}]", _text(value)) for key, value in _parsed(words[0]).items()])


def _refuse(settings: list[tuple[str, Any]]) -> None:
    _check(settings)
    raise UnsupportedValueError(f"{NAME} of type {SERVER_VAD!r} is not offered yet; use {AUTO!r}", param=NAME)


def _check(settings: list[tuple[str, Any]]) -> None:
    for bracketed, value in settings:
        field = SETTINGS.get(bracketed[1:-1])
        if field is None or bracketed != field.name.removeprefix(NAME):
            shown = f"{NAME}{bracketed}"[:FIELD_SHOWN]
            raise InvalidRequestError(f"Unknown parameter: {shown!r}", param=shown, code="unknown_parameter")
        if not isinstance(value, str):
            raise InvalidRequestError(f"{field.name} must be text, not a file", param=field.name)
        field.read(value)
    names = [bracketed for bracketed, _ in settings]
    if len(names) > len(set(names)):
        raise InvalidRequestError(f"{NAME} has a setting more than once", param=NAME)
    if "[type]" not in names:
        raise InvalidRequestError(f"{NAME} must be {AUTO!r} or have a type", param=NAME)


def _parsed(word: Any) -> Mapping[str, Any]:
    if not isinstance(word, str):
        raise InvalidRequestError(f"{NAME} must be text, not a file", param=NAME)
    try:
        parsed = json.loads(word)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidRequestError(f"{NAME} must be {AUTO!r} or an object, not {word[:FIELD_SHOWN]!r}", param=NAME)
    return parsed


def _text(value: Any) -> str:
    """A JSON value as a form would spell it."""
    return value if isinstance(value, str) else json.dumps(value)
