"""What a caller gets for a good request."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest


def test_the_openai_client_gets_text_languages_and_usage(server: Any, wav: Any) -> None:
    answer = server.client().audio.transcriptions.create(model="fake", file=("any.name", wav("grüße 你好")))
    assert answer.text == "grüße 你好"
    body = answer.to_dict()
    assert body["languages"] == []
    assert body["usage"] == {"type": "duration", "seconds": 2}
    coverage = [{"start_sample": 0, "end_sample": 18400, "start": 0.0, "end": 1.15, "state": "decoded"}]
    assert body["x_asr"] == {"coverage": coverage, "guards": []}


def test_text_is_the_bare_text(server: Any, wav: Any) -> None:
    answer = server.post(("model", "fake"), ("response_format", "text"), ("file", wav("grüße")))
    assert (answer.status_code, answer.content) == (200, "grüße".encode())
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_the_client_hands_the_text_on_untouched(server: Any, wav: Any) -> None:
    text = server.client().audio.transcriptions.create(
        model="fake", file=io.BytesIO(wav("plain")), response_format="text"
    )
    assert text == "plain"


def test_subtitles_name_who_speaks(server: Any, wav: Any) -> None:
    file, asked = wav("ab/cd"), (("model", "fake"), ("behaviour", "speakers"))
    srt = server.post(*asked, ("response_format", "srt"), ("file", file))
    assert srt.headers["content-type"] == "text/plain; charset=utf-8"
    assert re.fullmatch(
        r"1\n00:00:00,\d{3} --> 00:00:00,\d{3}\nA: ab\n\n2\n00:00:00,\d{3} --> 00:00:00,\d{3}\nB: cd\n\n", srt.text
    )
    vtt = server.post(*asked, ("response_format", "vtt"), ("file", file))
    assert vtt.headers["content-type"] == "text/vtt; charset=utf-8"
    assert vtt.text.startswith("WEBVTT\n\n00:00:00.")
    assert vtt.text.count("\nA: ab\n") == vtt.text.count("\nB: cd\n") == 1


def test_the_openai_client_gets_who_said_what(server: Any, wav: Any) -> None:
    answer = server.client().audio.transcriptions.create(
        model="fake", file=wav("ab/cd"), response_format="diarized_json", extra_body={"behaviour": "speakers"}
    )
    body = answer.to_dict()
    assert (body["task"], body["duration"], body["text"]) == ("transcribe", pytest.approx(0.43), "A: ab\nB: cd")
    assert body["usage"] == {"type": "duration", "seconds": 1}
    first, second = body["segments"]
    assert first.keys() == second.keys() == {"type", "id", "start", "end", "text", "speaker"}
    assert (first["type"], first["id"], second["id"]) == ("transcript.text.segment", "seg_001", "seg_002")
    assert [(one["text"], one["speaker"]) for one in (first, second)] == [("ab", "A"), ("cd", "B")]
    assert 0 <= first["start"] < first["end"] <= second["start"] < second["end"] <= body["duration"]


@pytest.mark.parametrize("name", ["srt", "vtt", "diarized_json"])
def test_a_model_without_times_or_speakers_gives_none(server: Any, wav: Any, name: str) -> None:
    error = server.post(("model", "echo"), ("response_format", name), ("file", wav("x"))).json()["error"]
    assert (error["param"], error["code"]) == ("response_format", "unsupported_value")
    assert error["message"].endswith("Use 'json' or 'text' or 'verbose_json' instead.")


def test_silence_is_an_empty_text(server: Any, wav: Any) -> None:
    file = wav("x" * 9)
    answer = server.post(("model", "fake"), ("file", file[:44] + bytes(len(file) - 44)))
    assert answer.status_code == 200
    assert answer.json()["text"] == ""
    assert [part["state"] for part in answer.json()["x_asr"]["coverage"]] == ["silent"]


def test_name_and_type_of_the_part_mean_nothing(server: Any, wav: Any) -> None:
    files = {"file": ("../../etc/passwd\x00.exe", wav("same"), "text/html")}
    answer = server.http.post("/v1/audio/transcriptions", data={"model": "fake"}, files=files)
    assert answer.json()["text"] == "same"


@pytest.mark.parametrize("order", [("model", "file"), ("file", "model")])
def test_the_order_of_parts_means_nothing(server: Any, wav: Any, order: tuple[str, str]) -> None:
    parts = {"model": "fake", "file": wav("order")}
    assert server.post(*((name, parts[name]) for name in order)).json()["text"] == "order"


def test_a_chunked_body_is_taken(server: Any, wav: Any) -> None:
    body = form(b"model", b"fake") + form(b"file", wav("chunks"), b'; filename="x"') + b"--b--\r\n"
    chunks = (body[at : at + 1000] for at in range(0, len(body), 1000))
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = server.http.post("/v1/audio/transcriptions", content=chunks, headers=headers)
    assert "content-length" not in answer.request.headers
    assert answer.json()["text"] == "chunks"


@pytest.mark.parametrize("name", ["fake", "fake-tones"])
def test_a_model_answers_to_its_aliases(server: Any, wav: Any, name: str) -> None:
    assert server.post(("model", name), ("file", wav("alias"))).json()["text"] == "alias"


def test_an_option_of_the_model_reaches_it(server: Any, wav: Any) -> None:
    answer = server.post(("model", "fake"), ("behaviour", "early_end"), ("file", wav("0123456789")))
    assert answer.json()["text"] == "012345"


def test_fields_reach_the_model_with_their_types(server: Any, wav: Any) -> None:
    fields = {
        "model": "org/echo",
        "language": "de",
        "prompt": "Ünïcode",
        "temperature": "0.5",
        "stream": "false",
        "count": "-3",
        "ratio": "1e2",
        "loud": "true",
        "who": "me",
        "mood": "sad",
        "keywords": "first",
    }
    parts = [*fields.items(), ("keywords[]", "second"), ("keywords[]", "third"), ("file", wav("x"))]
    assert echoed(server.post(*parts)) == {
        "language": "de",
        "prompt": "Ünïcode",
        "keywords": ["first", "second", "third"],
        "temperature": 0.5,
        "options": {"count": -3, "ratio": 100.0, "loud": True, "who": "me", "mood": "sad"},
    }


def test_an_empty_field_counts_as_not_given(server: Any, wav: Any) -> None:
    names = ("language", "prompt", "temperature", "response_format", "stream", "keywords[]", "count", "voice")
    asked = echoed(server.post(("model", "echo"), *((name, "") for name in names), ("file", wav("x"))))
    assert asked == {"language": None, "prompt": None, "keywords": [], "temperature": None, "options": {}}


def test_the_client_can_send_what_models_declare(server: Any, wav: Any) -> None:
    answer = server.client().audio.transcriptions.create(
        model="fake", file=wav("0123456789"), extra_body={"behaviour": "early_end"}
    )
    assert answer.text == "012345"


def test_models_are_listed_with_what_they_can(server: Any) -> None:
    listed = server.client().models.list().data
    assert [(model.id, model.object, model.owned_by) for model in listed] == [
        ("fake", "model", "asr-fake"),
        ("org/echo", "model", "asr-echo"),
        ("able", "model", "asr-able"),
    ]
    facts = listed[0].to_dict()["x_asr"]
    assert facts["native_limit"]["seconds"] == 60.0
    assert facts["native_limit"]["sources"] == {"seconds": "the number of time tokens"}
    assert facts["capabilities"]["options"][0]["name"] == "behaviour"
    assert facts["chunk_policy"]["target_s"] is None
    assert (facts["device"], facts["dtype"]) == ("cpu", "float32")
    assert facts["engine"]


def test_a_model_with_a_slash_is_found(server: Any) -> None:
    model = server.client().models.retrieve("org/echo")
    assert (model.id, isinstance(model.created, int)) == ("org/echo", True)
    assert server.http.get("/v1/models/echo").json()["id"] == "org/echo"


@pytest.mark.parametrize(("path", "status"), [("/health", "ok"), ("/ready", "ready")])
def test_probes(server: Any, path: str, status: str) -> None:
    answer = server.http.get(path)
    assert (answer.status_code, answer.json()["status"]) == (200, status)


def test_health_counts_what_the_engines_did(server: Any, wav: Any) -> None:
    before = server.engine("fake")
    server.post(("model", "fake"), ("file", wav("count")))
    after = server.engine("fake")
    assert (after["finished"] - before["finished"], after["tokens"] - before["tokens"]) == (1, len("count") + 1)
    assert list(server.http.get("/health").json()["x_asr"]["models"]) == ["fake", "org/echo", "able"]


def test_a_request_id_comes_back_if_it_is_harmless(server: Any) -> None:
    ids = [
        server.http.get("/health", headers={"x-request-id": id_}).headers["x-request-id"] for id_ in ("a.B-1", "a b")
    ]
    assert ids[0] == "a.B-1"
    assert ids[1].startswith("req_")
    assert server.http.get("/nowhere").headers["x-request-id"].startswith("req_")


def test_the_log_tells_nothing_of_what_was_said(server: Any, wav: Any) -> None:
    files = {"file": ("private-name.wav", wav("private words"))}
    data = {"model": "echo", "prompt": "private prompt"}
    path = "/v1/audio/transcriptions?private=query"
    id_ = server.http.post(path, data=data, files=files).headers["x-request-id"]
    server.wait_for(f"POST /v1/audio/transcriptions 400 .*{id_}")
    assert "private" not in server.output


def form(name: bytes, value: bytes, more: bytes = b"") -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name, more, value)


def echoed(answer: Any) -> dict[str, Any]:
    asked = json.loads(answer.json()["error"]["message"])
    assert isinstance(asked, dict)
    return asked
