"""From form parts to a checked call: every field is known, unique where it must be, and of its type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from attrs import frozen
from starlette.datastructures import FormData, UploadFile

from asr_core.errors import InvalidRequestError, UnsupportedValueError
from asr_core.loading import ServedModel
from asr_core.serve.catalog import Catalog
from asr_core.serve.form import FIELD_SHOWN
from asr_core.serve.formats import FORMATS, ResponseFormat
from asr_core.serve.limits import too_large
from asr_core.types import OptionSpec, TranscriptionRequest, UploadLimits

SINGLE = frozenset({"file", "model", "language", "prompt", "temperature", "response_format", "stream"})
LISTS = frozenset({"keywords"})
LATER = frozenset(
    {
        "languages",
        "include",
        "timestamp_granularities",
        "chunking_strategy",
        "known_speaker_names",
        "known_speaker_references",
    }
)
"""OpenAI's fields that no model is served with yet."""


@frozen(eq=False)
class Call:
    """One transcription to make; ``file`` is open as long as its form is."""

    served: ServedModel
    file: BinaryIO
    request: TranscriptionRequest
    format: ResponseFormat
    stream: bool


def read_call(form: FormData, catalog: Catalog, limits: UploadLimits) -> Call:
    """Read the fields of ``form``; one left empty counts as not given.

    Raises:
        InvalidRequestError: a field is unknown, repeated or of the wrong type; ``param`` names it.
        ModelNotFoundError: no such model is served.
    """
    texts = _Texts(form)
    served = catalog.find(texts.require("model"))
    options = {spec.name: spec for spec in served.capabilities.options if spec.name not in SINGLE | LISTS}
    _refuse_unknown(form, options)
    stream = bool(texts.converted("stream", _boolean))
    answer = texts.response_format(served, stream)
    request = TranscriptionRequest(
        language=texts.one("language"),
        prompt=texts.one("prompt"),
        keywords=texts.many("keywords"),
        temperature=texts.converted("temperature", _number),
        times=answer.times,
        options=texts.options(options),
    )
    return Call(served, _file(form, limits), request, answer, stream)


@frozen
class _Texts:
    """The text fields of a form."""

    form: FormData

    def many(self, name: str) -> tuple[str, ...]:
        """Every value of ``name`` and ``name[]``, which clients use alike."""
        values = [value for key, value in self.form.multi_items() if _bare(key) == name]
        for value in values:
            if not isinstance(value, str):
                raise InvalidRequestError(f"{name} must be text, not a file", param=name)
        return tuple(value for value in values if isinstance(value, str) and value)

    def one(self, name: str) -> str | None:
        if len(self.form.getlist(name)) > 1:
            raise InvalidRequestError(f"{name} is given more than once", param=name)
        return next(iter(self.many(name)), None)

    def require(self, name: str) -> str:
        value = self.one(name)
        if value is None:
            raise InvalidRequestError(f"you must provide {name}", param=name, code="missing_required_parameter")
        return value

    def converted(self, name: str, convert: Callable[[str], Any]) -> Any:
        text = self.one(name)
        if text is None:
            return None
        try:
            return convert(text)
        except ValueError as error:
            raise InvalidRequestError(f"{name} must be {error}, not {text[:FIELD_SHOWN]!r}", param=name) from error

    def options(self, specs: Mapping[str, OptionSpec]) -> dict[str, Any]:
        given = {name: self.converted(name, _CONVERT[spec.type]) for name, spec in specs.items()}
        return {name: value for name, value in given.items() if value is not None}

    def response_format(self, served: ServedModel, stream: bool) -> ResponseFormat:
        name = self.one("response_format") or "json"
        offered = [each for each, known in FORMATS.items() if known.is_offered(served.capabilities, stream)]
        if name not in offered:
            raise UnsupportedValueError(
                f"response_format {name[:FIELD_SHOWN]!r} is not offered for model {served.card.name!r}"
                f"{' with stream' if stream else ''}. Use {' or '.join(map(repr, offered))} instead.",
                param="response_format",
                layer="server",
            )
        return FORMATS[name]


def _refuse_unknown(form: FormData, options: Mapping[str, OptionSpec]) -> None:
    for key in form:
        if key in SINGLE or key in options or _bare(key) in LISTS:
            continue
        shown, name = key[:FIELD_SHOWN], key.partition("[")[0]
        if name in LATER:
            raise UnsupportedValueError(f"{name} is not offered yet", param=name, layer="server")
        known = ", ".join(sorted(SINGLE | LISTS | set(options)))
        raise InvalidRequestError(
            f"Unknown parameter: {shown!r}; known are {known}", param=shown, code="unknown_parameter"
        )


def _file(form: FormData, limits: UploadLimits) -> BinaryIO:
    files = form.getlist("file")
    if len(files) != 1:
        raise InvalidRequestError("you must provide file, exactly once", param="file")
    file = files[0]
    if not isinstance(file, UploadFile):
        raise InvalidRequestError("file must be an upload with a file name, not a text field", param="file")
    if not file.size:
        raise InvalidRequestError("file is empty", param="file")
    if file.size > limits.max_bytes:
        raise too_large(limits, file.size)
    return file.file


def _bare(key: str) -> str:
    return key.removesuffix("[]")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(number):
        raise ValueError("a finite number")
    return number


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("an integer") from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _audio(text: str) -> bytes:
    raise ValueError("left out, as audio options are not offered yet")


_CONVERT: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "audio": _audio,
}
