"""An answer as events, in OpenAI's shape: on the wire and through its client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.audio import TranscriptionTextDeltaEvent, TranscriptionTextDoneEvent

TEXT = "grüße 你好\u2028🙂"


def stream(server: Any, file: bytes, *parts: tuple[str, str]) -> Any:
    return server.post(("model", "fake"), ("stream", "true"), *parts, ("file", file))


def events_of(answer: Any) -> list[dict[str, Any]]:
    """The events, after a check of every byte between them."""
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-request-id"]
    *frames, rest = answer.content.split(b"\n\n")
    assert rest == b""
    assert all(frame.startswith(b"data: {") and b"\n" not in frame and frame.isascii() for frame in frames)
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


def test_deltas_then_the_end_with_all_of_it(server: Any, wav: Any) -> None:
    *deltas, done = events_of(stream(server, wav(f" {TEXT} ")))
    assert [list(delta) for delta in deltas] == [["type", "delta"]] * len(deltas)
    assert {delta["type"] for delta in deltas} == {"transcript.text.delta"}
    assert [delta["delta"] for delta in deltas] == ["g", "r", "ü", "ß", "e", " 你", "好", "\u2028🙂"]
    assert (done["type"], done["text"]) == ("transcript.text.done", TEXT)


def test_the_end_counts_tokens_and_tells_what_the_whole_answer_tells(server: Any, wav: Any) -> None:
    done = events_of(stream(server, wav("hello")))[-1]
    whole = server.post(("model", "fake"), ("file", wav("hello"))).json()
    assert {name: done[name] for name in ("text", "languages", "x_asr")} == {
        name: whole[name] for name in ("text", "languages", "x_asr")
    }
    # 80 ms a character and 30 ms before them, in frames of 10 ms; the prompt is one token, the stop token counts.
    assert done["usage"] == {
        "type": "tokens",
        "input_tokens": 44,
        "input_token_details": {"audio_tokens": 43, "text_tokens": 1},
        "output_tokens": 6,
        "total_tokens": 50,
    }


def test_the_client_iterates_it(server: Any, wav: Any) -> None:
    with server.client().audio.transcriptions.create(model="fake", file=wav(TEXT), stream=True) as events:
        *deltas, done = events
    assert all(type(event) is TranscriptionTextDeltaEvent for event in deltas)
    assert type(done) is TranscriptionTextDoneEvent
    assert "".join(delta.delta for delta in deltas) == done.text == TEXT
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens


def test_silence_is_the_end_alone(server: Any, wav: Any) -> None:
    file = wav("x" * 9)
    (done,) = events_of(stream(server, file[:44] + bytes(len(file) - 44)))
    assert (done["type"], done["text"]) == ("transcript.text.done", "")


@pytest.mark.parametrize("name", ["text", "srt", "verbose_json"])
def test_other_formats_are_not_streamed(server: Any, wav: Any, name: str) -> None:
    answer = stream(server, wav("x"), ("response_format", name))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "response_format", "unsupported_value")
    assert error["message"].endswith("and stream. Use 'json' or 'diarized_json' instead.")


@pytest.mark.parametrize(
    ("parts", "file", "status", "code"),
    [
        ([("prompt", "x")], None, 400, "unsupported_value"),
        ([], b"no audio", 400, "invalid_value"),
        ([("behaviour", "raise")], None, 500, "internal_error"),
    ],
    ids=["option", "audio", "engine"],
)
def test_an_error_before_the_first_event_keeps_its_status(
    server: Any, wav: Any, parts: list[tuple[str, str]], file: bytes | None, status: int, code: str
) -> None:
    # The model fails after three characters, of which nothing can be seen here.
    answer = stream(server, file or wav("   abc"), *parts)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"


def test_an_error_after_it_is_the_last_event(server: Any, wav: Any) -> None:
    answer = stream(server, wav("abcdef"), ("behaviour", "raise"))
    *deltas, last = events_of(answer)
    assert [delta["delta"] for delta in deltas] == ["a", "b", "c"]
    assert list(last) == ["error"]
    error = last["error"]
    assert (error["type"], error["param"], error["code"]) == ("server_error", None, "internal_error")
    assert error["x_asr"] == {"layer": "engine"}
    assert answer.headers["x-request-id"] in error["message"]
    server.wait_for("RuntimeError: the behaviour 'raise' was asked for")


def test_the_client_raises_an_error_inside_a_stream(server: Any, wav: Any) -> None:
    events = server.client().audio.transcriptions.create(
        model="fake", file=wav("abcdef"), stream=True, extra_body={"behaviour": "raise"}
    )
    heard: list[str] = []
    with events, pytest.raises(openai.APIError, match="The server failed on this request"):
        heard.extend(event.delta for event in events)
    assert heard == ["a", "b", "c"]


def test_stream_false_is_the_whole_answer(server: Any, wav: Any) -> None:
    answer = server.post(("model", "fake"), ("stream", "false"), ("file", wav("whole")))
    assert (answer.headers["content-type"], answer.json()["text"]) == ("application/json", "whole")
