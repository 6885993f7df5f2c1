"""From form parts to a checked call: every field is known, unique where it must be, and fits the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from attrs import frozen
from starlette.datastructures import FormData, UploadFile

from asr_core.errors import InvalidRequestError, UnsupportedValueError
from asr_core.loading import ServedModel
from asr_core.serve.bodies import View
from asr_core.serve.catalog import Catalog
from asr_core.serve.chunking import read_chunking
from asr_core.serve.endpoint import Endpoint
from asr_core.serve.fields import FIELDS, Field, Given
from asr_core.serve.form import FIELD_SHOWN, FILE
from asr_core.serve.formats import FORMATS, ResponseFormat
from asr_core.serve.limits import too_large
from asr_core.types import Capabilities, TranscriptionRequest, UploadLimits

UNSERVED = ("known_speaker_names", "known_speaker_references")
"""Fields that no model is served with yet."""

FURTHER = ("file", "strategy")
"""Types of fields that are more than one text each."""


@frozen(eq=False)
class Call:
    """One upload to answer; ``file`` is open as long as its form is."""

    served: ServedModel
    file: BinaryIO
    request: TranscriptionRequest
    format: ResponseFormat
    view: View
    stream: bool


def read_call(form: FormData, endpoint: Endpoint, catalog: Catalog, limits: UploadLimits) -> Call:
    """Read the fields of ``form``; one left empty counts as not given.

    Raises:
        InvalidRequestError: a field is unknown, repeated, mistyped or at odds with another; ``param`` names it.
        ModelNotFoundError: no such model is served.
    """
    given = Given(form)
    served = catalog.find(given.require(FIELDS["model"]))
    _check_task(endpoint, served)
    options = model_options(served.capabilities)
    given.check_known([*endpoint.fields.values(), *options.values()])
    values = {name: given.value(field) for name, field in FIELDS.items() if field.type not in FURTHER}
    format_ = _format(values, endpoint, served)
    _check_clashes(values, format_)
    view = View.of(endpoint.task, endpoint.language, values["timestamp_granularities"], values["include"])
    request = TranscriptionRequest(
        task=endpoint.task,
        language=values["language"],
        languages=values["languages"],
        prompt=values["prompt"],
        keywords=values["keywords"],
        temperature=values["temperature"],
        times=format_.times(view, served.capabilities),
        server_vad=read_chunking(form),
        options=_given_options(given, options),
    )
    return Call(served, read_file(form, limits), request, format_, view, bool(values["stream"]))


def model_options(capabilities: Capabilities) -> dict[str, Field]:
    """The fields a model adds; one that is called like a field of the route is not reachable."""
    return {option.name: Field.of(option) for option in capabilities.options if option.name not in FIELDS}


def _check_task(endpoint: Endpoint, served: ServedModel) -> None:
    # The caller chose a route and a model; no field of theirs is called task.
    if endpoint.task not in served.capabilities.tasks:
        can = ", ".join(sorted(served.capabilities.tasks))
        raise UnsupportedValueError(f"model {served.card.name!r} cannot {endpoint.task}; it can {can}", param="model")


def _given_options(given: Given, options: Mapping[str, Field]) -> dict[str, Any]:
    values = {name: given.value(field) for name, field in options.items()}
    return {name: value for name, value in values.items() if value is not None}


def _format(values: Mapping[str, Any], endpoint: Endpoint, served: ServedModel) -> ResponseFormat:
    name, stream = values["response_format"] or endpoint.formats[0], bool(values["stream"])
    offered = [known for known in endpoint.formats if FORMATS[known].is_offered(served.capabilities, stream)]
    if name not in offered:
        raise UnsupportedValueError(
            f"response_format {name[:FIELD_SHOWN]!r} is not compatible with model {served.card.name!r}"
            f"{' and stream' if stream else ''}. Use {' or '.join(map(repr, offered))} instead.",
            param="response_format",
            layer="server",
        )
    return FORMATS[name]


def _check_clashes(values: Mapping[str, Any], format_: ResponseFormat) -> None:
    if values["include"] and not format_.logprobs:
        raise UnsupportedValueError("include needs response_format 'json'", param="include", layer="server")
    if values["timestamp_granularities"] and not format_.granular:
        message = "timestamp_granularities need response_format 'verbose_json'"
        raise UnsupportedValueError(message, param="timestamp_granularities", layer="server")
    for name in UNSERVED:
        if values[name]:
            raise UnsupportedValueError(f"{name}: no model here takes known speakers", param=name)


def read_file(form: FormData, limits: UploadLimits) -> BinaryIO:
    """The one file of an upload.

    Raises:
        InvalidRequestError: there is none, or more; UploadTooLargeError: it is larger than the endpoint takes.
    """
    files = [file for file in form.getlist(FILE) if isinstance(file, UploadFile)]
    if len(files) != 1:
        raise InvalidRequestError("you must provide file, exactly once", param=FILE)
    file = files[0]
    if not file.size:
        raise InvalidRequestError("file is empty", param=FILE)
    if file.size > limits.max_bytes:
        raise too_large(limits, file.size)
    return file.file
