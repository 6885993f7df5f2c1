"""The API's own description, made of the tables that answer requests, for the models that are served."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from attrs import frozen
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from asr_core.errors import AsrError
from asr_core.loading import ServedModel
from asr_core.serve.call import UNSERVED, model_options
from asr_core.serve.chunking import AUTO, SETTINGS
from asr_core.serve.endpoint import ENDPOINTS, Endpoint
from asr_core.serve.events import MEDIA_TYPE
from asr_core.serve.fields import Field
from asr_core.serve.formats import COVERAGE, FORMATS
from asr_core.serve.plan import PATH as PLAN
from asr_core.serve.plan import PLAN_FIELDS
from asr_core.serve.schemas import SCHEMAS, STRING, Schema, object_of, one_of, ref

PATH = "/openapi.json"

REQUIRED = ("file", "model")

BODIES = {"json": "Transcription", "verbose_json": "VerboseTranscription", "diarized_json": "DiarizedTranscription"}
"""The shapes of formats that are objects; the others are text."""

EVENTS = "Lines of data: TextDelta, SpeakerSegment, at the end one TextDone; or an Error, after which nothing comes."

KEY = "key"

_REQUEST_ID = {"x-request-id": {"description": "The caller's own if it is harmless, else made here.", "schema": STRING}}


@frozen(eq=False)
class OpenApi:
    """A route that answers with ``document``."""

    document: Schema

    @classmethod
    def of(cls, models: Mapping[str, ServedModel]) -> OpenApi:
        """The description of a server of ``models``."""
        speech = {endpoint.path: {"post": _speech(endpoint, models)} for endpoint in ENDPOINTS.values()}
        return cls(
            {
                "openapi": "3.1.0",
                "info": {"title": "asr-core", "version": "v1"},
                "paths": speech | _plan(models) | _information(),
                "components": {
                    "schemas": SCHEMAS,
                    "securitySchemes": {KEY: {"type": "http", "scheme": "bearer"}},
                },
                # Only a server that was given keys asks for one.
                "security": [{}, {KEY: []}],
            }
        )

    async def show(self, request: Request) -> Response:
        """The document."""
        return JSONResponse(self.document)


def _speech(endpoint: Endpoint, models: Mapping[str, ServedModel]) -> Schema:
    return {
        "operationId": endpoint.task,
        "summary": f"{endpoint.task.capitalize()} one recording; a field left empty counts as not given.",
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _form(endpoint, models)}}},
        "responses": {"200": _answer(endpoint)} | _failures(sorted(set(_statuses(AsrError)))),
    }


def _plan(models: Mapping[str, ServedModel]) -> dict[str, Any]:
    form = _object(_fields(PLAN_FIELDS.values(), {"model": _names(models)}), ["model"])
    answer = {
        "description": "Every number that decides it, and the clips.",
        "headers": _REQUEST_ID,
        "content": {"application/json": {"schema": ref("Plan")}},
    }
    operation = {
        "operationId": "plan",
        "summary": "Where one recording, or so many seconds of any, would be cut; give file or duration.",
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}},
        "responses": {"200": answer} | _failures(sorted(set(_statuses(AsrError)))),
    }
    return {PLAN: {"post": operation}}


def _form(endpoint: Endpoint, models: Mapping[str, ServedModel]) -> Schema:
    known = {"model": _names(models), "response_format": one_of(*endpoint.formats)}
    served = [field for field in endpoint.fields.values() if field.name not in UNSERVED]
    properties = _fields(served, known)
    for name, values in _options(models.values()).items():
        properties[name] = values[0] if len(values) == 1 else {"anyOf": values}
    return _object(properties, REQUIRED)


def _object(properties: Schema, required: Iterable[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _names(models: Mapping[str, ServedModel]) -> Schema:
    # Without what the operator typed, which may be a path.
    return one_of(*sorted({name for id_, served in models.items() for name in (id_, *served.card.aliases)}))


def _fields(fields: Iterable[Field], known: Mapping[str, Schema]) -> dict[str, Schema]:
    """The keys of a form that ``fields`` are sent under, with the values that are ``known`` here."""
    properties: dict[str, Schema] = {}
    for field in fields:
        properties |= _properties(field, known.get(field.name, _value(field)))
    return properties


def _properties(field: Field, value: Schema) -> dict[str, Schema]:
    """The keys under which ``field`` is sent."""
    if field.type == "strategy":
        members = {setting.name: {**_value(setting), "description": setting.summary} for setting in SETTINGS.values()}
        return {field.name: {**value, "description": field.summary}, **members}
    if not field.repeated:
        return {field.name: {**value, "description": field.summary}}
    values = {"type": "array", "items": value, "description": field.summary}
    return {field.name: values, f"{field.name}[]": values}


def _value(field: Field) -> Schema:
    if field.type == "file":
        return {"type": "string", "format": "binary"}
    if field.type == "strategy":
        members = {name: _value(setting) for name, setting in SETTINGS.items()}
        return {"anyOf": [one_of(AUTO), object_of({"type": members.pop("type")}, members)]}
    bounds = {"minimum": field.low, "maximum": field.high}
    schema = {"type": field.type} | {name: bound for name, bound in bounds.items() if math.isfinite(bound)}
    return schema | ({"enum": list(field.choices)} if field.choices else {})


def _options(models: Iterable[ServedModel]) -> dict[str, list[Schema]]:
    """What plugins declare, each kind of value once; sound is not taken yet."""
    options: dict[str, list[Schema]] = {}
    for served in models:
        for name, field in model_options(served.capabilities).items():
            if field.type != "audio":
                kinds = options.setdefault(name, [])
                value = {**_value(field), "description": field.summary}
                kinds += [value] if value not in kinds else []
    return options


def _answer(endpoint: Endpoint) -> Schema:
    content: dict[str, Any] = {}
    for name in endpoint.formats:
        shapes = content.setdefault(FORMATS[name].media_type, {"schema": {"anyOf": []}})["schema"]["anyOf"]
        shape = ref(BODIES[name]) if name in BODIES else STRING
        shapes += [shape] if shape not in shapes else []
    if "stream" in endpoint.fields:
        content[MEDIA_TYPE] = {"schema": {**STRING, "description": EVENTS}}
    coverage = {"description": "Stretches of the audio by what became of them, of answers in text.", "schema": STRING}
    return {"description": "The text.", "headers": _REQUEST_ID | {COVERAGE: coverage}, "content": content}


def _information() -> dict[str, Any]:
    listed = {"name": "id", "in": "path", "required": True, "schema": STRING}
    json = "application/json"
    return {
        "/v1/models": _get("models", "The served models.", json, ref("Models")),
        "/v1/models/{id}": _get("model", "One of them.", json, ref("Model"), 404) | {"parameters": [listed]},
        "/health": _get("health", "Alive, and what engines have done.", json, ref("Health")),
        "/ready": _get("ready", "Whether more requests are welcome.", json, ref("Ready"), 503),
        "/metrics": _get("metrics", "For Prometheus.", "text/plain", STRING),
        PATH: _get("openapi", "This description.", json, {"type": "object"}),
    }


def _get(name: str, summary: str, media_type: str, schema: Schema, *statuses: int) -> dict[str, Any]:
    answer = {"description": summary, "headers": _REQUEST_ID, "content": {media_type: {"schema": schema}}}
    responses = {"200": answer} | _failures(sorted({401, 500, *statuses}))
    return {"get": {"operationId": name, "summary": summary, "responses": responses}}


def _failures(statuses: Iterable[int]) -> dict[str, Any]:
    content = {"application/json": {"schema": ref("Error")}}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "headers": _REQUEST_ID, "content": content}
        for status in statuses
    }


def _statuses(error: type[AsrError]) -> Iterator[int]:
    yield error.status
    for narrower in error.__subclasses__():
        yield from _statuses(narrower)
