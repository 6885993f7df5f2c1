"""The description tells the truth: real answers fit it, and what it does not list is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.requests import Request

from asr_core.errors import AsrError, AuthenticationError, BusyError, DeadlineError, InvalidRequestError, PluginError
from asr_core.serve.errors import problem_of
from asr_core.testing.http_contract import TRANSLATIONS, body_of, error_of, events_of
from asr_core.testing.server import TRANSCRIPTIONS, Server

JSON = "application/json"


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    return body_of(server.http.get("/openapi.json"))


def validate(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def form(document: dict[str, Any], path: str) -> dict[str, Any]:
    schema: dict[str, Any] = document["paths"][path]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    return schema


def answer_schema(document: dict[str, Any], path: str, method: str, status: str, media_type: str) -> dict[str, Any]:
    schema: dict[str, Any] = document["paths"][path][method]["responses"][status]["content"][media_type]["schema"]
    return schema


def test_every_schema_is_one(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert document["openapi"] == "3.1.0"


def test_no_reference_dangles(document: dict[str, Any]) -> None:
    names = {f'"#/components/schemas/{name}"' for name in document["components"]["schemas"]}
    text = json.dumps(document)
    used = {part.partition("}")[0].strip() for part in text.split('"$ref":')[1:]}
    assert used <= names
    # Events are text to OpenAPI 3.1, so their shapes are named in words.
    assert {name.rpartition("/")[2].strip('"') for name in names - used} == {"TextDelta", "TextDone"}


@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
@pytest.mark.parametrize("name", ["json", "verbose_json", "diarized_json", "text", "srt", "vtt"])
def test_answers_fit(server: Server, document: dict[str, Any], wav: Any, path: str, name: str) -> None:
    more = [("timestamp_granularities", "word"), ("timestamp_granularities", "segment")] * (name == "verbose_json")
    more += [("include", "logprobs")] * (name == "json")
    more = more * (path == TRANSCRIPTIONS)
    parts = [("model", "able"), ("response_format", name), *more, ("file", wav("one two"))]
    answer = server.post(*parts, path=path)
    media_type = answer.headers["content-type"].partition(";")[0]
    offered = name in form(document, path)["properties"]["response_format"]["enum"]
    assert answer.status_code == (200 if offered else 400)
    schema = answer_schema(document, path, "post", str(answer.status_code), media_type)
    validate(document, schema, answer.json() if media_type == JSON else answer.text)


@pytest.mark.parametrize("name", ["json", "diarized_json"])
def test_events_fit(server: Server, document: dict[str, Any], wav: Any, name: str) -> None:
    parts = [("model", "fake"), ("behaviour", "speakers"), ("stream", "true"), ("response_format", name)]
    shapes = {"delta": "TextDelta", "segment": "SpeakerSegment", "done": "TextDone"}
    for event in events_of(server.post(*parts, ("file", wav("ab/cd")))):
        schema = document["components"]["schemas"][shapes[event["type"].rpartition(".")[2]]]
        validate(document, schema, event)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/{id}", "/health", "/ready", "/metrics", "/openapi.json"])
def test_what_only_tells_fits(server: Server, document: dict[str, Any], path: str) -> None:
    answer = server.http.get(path.replace("{id}", "org/echo"))
    media_type = answer.headers["content-type"].partition(";")[0]
    schema = answer_schema(document, path, "get", "200", media_type)
    validate(document, schema, answer.json() if media_type == JSON else answer.text)


def test_an_error_fits(server: Server, document: dict[str, Any]) -> None:
    answer = server.http.get("/v1/models/none")
    error_of(answer, 404)
    validate(document, answer_schema(document, "/v1/models/{id}", "get", "404", JSON), answer.json())


@pytest.mark.parametrize("error", [InvalidRequestError, AuthenticationError, BusyError, DeadlineError, PluginError])
def test_errors_of_every_kind_fit(document: dict[str, Any], error: type[AsrError]) -> None:
    request = Request({"type": "http", "state": {"request_id": "x"}})
    body = problem_of(error("no", setting="max_wait"), request).body
    validate(document, answer_schema(document, TRANSCRIPTIONS, "post", str(error.status), JSON), body)


def test_all_routes_are_described(server: Server, document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        (method,) = operations.keys() - {"parameters"}
        answer = server.http.request("OPTIONS", path.replace("{id}", "fake"))
        assert method.upper() in answer.headers["allow"].split(", ")


@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
def test_what_is_listed_is_known_and_nothing_else_is(
    server: Server, document: dict[str, Any], wav: Any, path: str
) -> None:
    listed = form(document, path)["properties"].keys()
    everything = form(document, TRANSCRIPTIONS)["properties"].keys() | {"task", "segment", "language[]"}
    of_the_echo = {"count", "ratio", "loud", "who", "mood"}
    for name in sorted(everything - of_the_echo - {"file", "model"}):
        # A value that no field takes, so that what is known is refused for another reason, or taken.
        answer = server.post(("model", "able"), (name, "\x01"), ("file", wav("x")), path=path)
        unknown = answer.status_code == 400 and answer.json()["error"]["code"] == "unknown_parameter"
        assert unknown == (name not in listed), name


def test_names_and_options_are_those_of_the_served_models(document: dict[str, Any]) -> None:
    properties = form(document, TRANSCRIPTIONS)["properties"]
    assert properties["model"]["enum"] == ["able", "echo", "fake", "fake-tones", "org/echo"]
    assert properties["mood"]["enum"] == ["glad", "sad"]
    assert properties["count"]["type"] == "integer"
    assert (properties["temperature"]["minimum"], properties["temperature"]["maximum"]) == (0, 1)
    assert "voice" not in properties
