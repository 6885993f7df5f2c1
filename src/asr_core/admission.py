"""What a loaded model cannot do is refused here, before a byte of audio is decoded."""

from __future__ import annotations

import math
from typing import Any

from attrs import evolve

from asr_core.errors import InvalidRequestError, UnsupportedValueError
from asr_core.languages import is_given, match_language
from asr_core.types import Capabilities, OptionSpec, TranscriptionRequest

MAX_TEMPERATURE = 1.0
"""OpenAI's documented range is 0 to 1."""

SHOWN = 100
"""Characters of an unknown language that are repeated to the caller."""


def admit(name: str, capabilities: Capabilities, request: TranscriptionRequest) -> TranscriptionRequest:
    """``request``, every field of it being what model ``name`` can do, with the model's own code for its language.

    A language that is not given, or is ``auto``, is None.

    Raises:
        UnsupportedValueError: the model cannot do it; ``param`` names the field.
        InvalidRequestError: the value is out of range or of the wrong type.
    """
    _check_task(name, capabilities, request)
    language = _admit_language(name, capabilities, request.language)
    candidates = _admit_candidates(name, capabilities, request)
    _check_times(name, capabilities, request.times)
    if request.prompt and capabilities.prompt is None:
        raise UnsupportedValueError(f"model {name!r} takes no prompt", param="prompt")
    if request.keywords and not capabilities.keywords:
        raise UnsupportedValueError(f"model {name!r} takes no keywords", param="keywords")
    _check_unicode(request)
    _check_temperature(name, capabilities, request.temperature)
    _check_options(name, capabilities.options, dict(request.options))
    return evolve(request, language=language, languages=candidates)


def _check_task(name: str, capabilities: Capabilities, request: TranscriptionRequest) -> None:
    if request.task not in capabilities.tasks:
        known = ", ".join(sorted(capabilities.tasks))
        raise UnsupportedValueError(f"model {name!r} cannot {request.task}; it can {known}", param="task")


def _admit_language(name: str, capabilities: Capabilities, text: str | None, param: str = "language") -> str | None:
    if text is None or not is_given(text):
        return None
    if not capabilities.languages:
        raise UnsupportedValueError(f"model {name!r} takes no language", param=param)
    if code := match_language(text, capabilities.languages, capabilities.language_aliases):
        return code
    shown = text.strip()[:SHOWN]
    known = ", ".join(capabilities.languages)
    raise UnsupportedValueError(f"model {name!r} does not know language {shown!r}; it knows {known}", param=param)


def _admit_candidates(name: str, capabilities: Capabilities, request: TranscriptionRequest) -> tuple[str, ...]:
    """The model's own codes, each once."""
    if not request.languages:
        return ()
    if not capabilities.candidates:
        raise UnsupportedValueError(f"model {name!r} takes no list of languages", param="languages")
    if is_given(request.language):
        raise InvalidRequestError("languages are candidates for detection; give them or language", param="languages")
    codes = (_admit_language(name, capabilities, text, "languages") for text in request.languages)
    return tuple(dict.fromkeys(code for code in codes if code is not None))


def _check_times(name: str, capabilities: Capabilities, times: frozenset[str]) -> None:
    can = {"segment": capabilities.segment_times, "word": capabilities.word_times}
    for unit in sorted(times):
        if not can.get(unit):
            raise UnsupportedValueError(f"model {name!r} gives no {unit} times", param="timestamp_granularities")


def _check_unicode(request: TranscriptionRequest) -> None:
    # Half a character, as a command line in a broken encoding has them: no tokenizer can take it.
    for field, text in (("prompt", request.prompt or ""), *(("keywords", keyword) for keyword in request.keywords)):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidRequestError(f"{field} is no valid Unicode text", param=field)


def _check_temperature(name: str, capabilities: Capabilities, temperature: float | None) -> None:
    if temperature is None:
        return
    if not (math.isfinite(temperature) and 0 <= temperature <= MAX_TEMPERATURE):
        raise InvalidRequestError(
            f"temperature is {temperature}, must be 0 to {MAX_TEMPERATURE:g}", param="temperature"
        )
    if temperature and not capabilities.temperature:
        raise UnsupportedValueError(f"model {name!r} does not sample; leave temperature at 0", param="temperature")


def _check_options(name: str, declared: tuple[OptionSpec, ...], given: dict[str, Any]) -> None:
    specs = {spec.name: spec for spec in declared}
    for option, value in given.items():
        if option not in specs:
            known = f"; it knows {', '.join(sorted(specs))}" if specs else ""
            raise UnsupportedValueError(f"model {name!r} has no option {option!r}{known}", param=option)
        _check_option(specs[option], value)


def _check_option(spec: OptionSpec, value: Any) -> None:
    if spec.type == "audio":
        raise UnsupportedValueError(f"{spec.name}: further audio is not taken yet", param=spec.name, layer="core")
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    # To Python a bool is an int; to a person it is not.
    mistaken = isinstance(value, bool) and spec.type != "boolean"
    if mistaken or not isinstance(value, types[spec.type]):
        raise InvalidRequestError(f"{spec.name} must be of type {spec.type}", param=spec.name)
    if spec.choices and value not in spec.choices:
        raise InvalidRequestError(f"{spec.name} must be one of {', '.join(spec.choices)}", param=spec.name)
