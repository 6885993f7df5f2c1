"""What a model answers over HTTP, as OpenAI's client and its types judge it; a plugin's test suite subclasses this.

from asr_core.testing.http_contract import HttpContract

class TestHttp(HttpContract):
    model = "my-model"            # a name, or a directory with a small random checkpoint

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls): ...         # the bytes of an audio file, some seconds in which somebody speaks

What the model cannot do is expected to be refused, by the field that asked for it.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import re
import wave
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import openai
import pytest
from openai.types.audio import (
    Transcription,
    TranscriptionDiarized,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionTextSegmentEvent,
    TranscriptionVerbose,
    Translation,
    TranslationVerbose,
)

from asr_core.testing.server import Server

TRANSLATIONS = "/v1/audio/translations"
FORMATS = ("json", "text", "srt", "verbose_json", "vtt", "diarized_json")
SEGMENT = {
    "id": int,
    "seek": int,
    "start": float,
    "end": float,
    "text": str,
    "tokens": list,
    "temperature": float,
    "avg_logprob": float,
    "compression_ratio": float,
    "no_speech_prob": float,
}
"""The ten fields of a segment, all of which OpenAI requires."""

_STAMP = r"(\d\d+):([0-5]\d):([0-5]\d)%s(\d\d\d)"
_SRT = re.compile(r"(\d+)\n{0} --> {0}\n([^\n]+)\n\n".format(_STAMP % ","))
_VTT = re.compile(r"(){0} --> {0}\n([^\n]+)\n\n".format(_STAMP % r"\."))


class HttpContract:
    """Subclass it, set :attr:`model` and override the fixture ``speech``."""

    model: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> bytes:
        """The bytes of an audio file, some seconds in which somebody speaks."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        """A server with the model."""
        arguments = ("--model", cls.model, "--dtype", "float32")
        server = Server(tmp_path_factory.mktemp("server"), os.environ, *arguments)
        yield server
        server.close()

    @pytest.fixture(scope="class")
    @classmethod
    def can(cls, server: Server) -> dict[str, Any]:
        """The model's capabilities, as the server lists them."""
        model: dict[str, Any] = server.http.get(f"/v1/models/{cls.model}").json()
        capabilities: dict[str, Any] = model["x_asr"]["capabilities"]
        return capabilities

    @pytest.fixture(scope="class")
    @classmethod
    def text(cls, server: Server, speech: bytes) -> str:
        """What the model hears."""
        text: str = server.post(("model", cls.model), ("file", speech)).json()["text"]
        assert text == text.strip() != ""
        return text

    def ask(self, server: Server, speech: bytes, *parts: tuple[str, str], **options: Any) -> httpx.Response:
        """One request for the model, with these fields."""
        return server.post(("model", self.model), *parts, ("file", speech), **options)

    def test_json(self, server: Server, speech: bytes, text: str) -> None:
        """The client's object and the body say the same."""
        answer = server.client().audio.transcriptions.create(model=self.model, file=speech)
        body = body_of(self.ask(server, speech, ("response_format", "json")))
        assert list(body) == ["text", "usage", "languages", "x_asr"]
        assert Transcription.model_validate(body, strict=True).text == answer.text == text
        assert body["usage"] == {"type": "duration", "seconds": math.ceil(body["usage"]["seconds"])}
        assert all(re.fullmatch("[a-z]{2,3}", language["code"]) for language in body["languages"])

    async def _transcribe(self, server: Server, speech: bytes) -> str:
        async with server.async_client() as client:
            answer = await client.audio.transcriptions.create(model=self.model, file=("a b.wav", speech))
            events = await client.audio.transcriptions.create(model=self.model, file=speech, stream=True)
            deltas = [event.delta async for event in events if isinstance(event, TranscriptionTextDeltaEvent)]
        assert "".join(deltas) == answer.text
        return answer.text

    def test_the_asynchronous_client(self, server: Server, speech: bytes, text: str) -> None:
        """It gets the same, whole and by events."""
        assert asyncio.run(self._transcribe(server, speech)) == text

    def test_text(self, server: Server, speech: bytes, text: str) -> None:
        """The bytes of the text and nothing around them."""
        answer = self.ask(server, speech, ("response_format", "text"))
        assert (answer.status_code, answer.content) == (200, text.encode())
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"

    def test_verbose_json(self, server: Server, speech: bytes, text: str) -> None:
        """Every required field has a value of its type, every time lies in the audio."""
        body = body_of(self.ask(server, speech, ("response_format", "verbose_json")))
        assert set(body) == {"task", "language", "duration", "text", "segments", "usage", "x_asr"}
        assert TranscriptionVerbose.model_validate(body, strict=True).text == body["text"]
        assert body["task"] == "transcribe"
        assert re.fullmatch(r"\w{4,}.*", body["language"])
        assert body["language"] == body["language"].lower()
        assert body["usage"] == {"type": "duration", "seconds": math.ceil(body["duration"])}
        check_segments(body)

    def test_a_client_reads_the_verbose_answer(self, server: Server, speech: bytes) -> None:
        """Through its own types."""
        answer = server.client().audio.transcriptions.create(
            model=self.model, file=speech, response_format="verbose_json", timestamp_granularities=["segment"]
        )
        assert type(answer) is TranscriptionVerbose
        assert answer.segments
        assert answer.words is None

    @pytest.mark.parametrize("key", ["timestamp_granularities", "timestamp_granularities[]"])
    @pytest.mark.parametrize("units", [("word",), ("word", "segment"), ("segment", "word"), ("segment",)], ids="-".join)
    def test_granularities(
        self, server: Server, speech: bytes, can: dict[str, Any], key: str, units: tuple[str, ...]
    ) -> None:
        """Exactly the sections that were asked for, in either spelling and order."""
        asked = [("response_format", "verbose_json"), *((key, unit) for unit in units)]
        answer = self.ask(server, speech, *asked)
        if "word" in units and not can["word_times"]:
            assert error_of(answer, 400)["param"] == "timestamp_granularities"
            return
        body = body_of(answer)
        assert {f"{unit}s" for unit in units} == body.keys() & {"segments", "words"}
        TranscriptionVerbose.model_validate(body, strict=True)
        if "word" in units:
            check_words(body)

    @pytest.mark.parametrize(("name", "cue"), [("srt", _SRT), ("vtt", _VTT)])
    def test_subtitles(
        self, server: Server, speech: bytes, can: dict[str, Any], name: str, cue: re.Pattern[str]
    ) -> None:
        """Nothing but cues, numbered if they are and in order."""
        answer = self.ask(server, speech, ("response_format", name))
        if not can["segment_times"]:
            assert error_of(answer, 400)["param"] == "response_format"
            return
        assert answer.headers["content-type"] == f"text/{'vtt' if name == 'vtt' else 'plain'}; charset=utf-8"
        cues = answer.text.removeprefix("WEBVTT\n\n") if name == "vtt" else answer.text
        found = list(cue.finditer(cues))
        assert "".join(match.group() for match in found) == cues != ""
        assert [match[1] for match in found if match[1]] == [str(n + 1) for n in range(len(found)) if name == "srt"]
        starts = [_seconds(match.groups()[1:5]) for match in found]
        assert starts == sorted(starts)
        assert all(start <= _seconds(match.groups()[5:9]) for start, match in zip(starts, found, strict=True))

    def test_who_said_what(self, server: Server, speech: bytes, can: dict[str, Any], text: str) -> None:
        """Whole and by events: the same segments with the same ids, and deltas that add up."""
        asked = ("response_format", "diarized_json")
        whole = self.ask(server, speech, asked)
        if not can["speakers"]:
            assert error_of(whole, 400)["param"] == "response_format"
            return
        body = body_of(whole)
        TranscriptionDiarized.model_validate(body, strict=True)
        assert body["text"] == "\n".join(f"{one['speaker']}: {one['text']}" for one in body["segments"])
        events = events_of(self.ask(server, speech, asked, ("stream", "true")))
        assert [event for event in events if event["type"] == "transcript.text.segment"] == body["segments"]
        deltas = [event["delta"] for event in events if event["type"] == "transcript.text.delta"]
        assert "".join(deltas) == events[-1]["text"] == text
        for segment in body["segments"]:
            TranscriptionTextSegmentEvent.model_validate(segment, strict=True)

    def test_a_stream(self, server: Server, speech: bytes, text: str) -> None:
        """Deltas, then the end; nothing is taken back."""
        *deltas, done = events_of(self.ask(server, speech, ("stream", "true")))
        assert {delta["type"] for delta in deltas} == {"transcript.text.delta"}
        assert "".join(delta["delta"] for delta in deltas) == done["text"] == text
        assert TranscriptionTextDoneEvent.model_validate(done, strict=True).usage
        with server.client().audio.transcriptions.create(model=self.model, file=speech, stream=True) as events:
            kinds = [type(event) for event in events]
        assert kinds == [TranscriptionTextDeltaEvent] * len(deltas) + [TranscriptionTextDoneEvent]

    @pytest.mark.parametrize("stream", ["false", "true"])
    def test_log_probabilities(self, server: Server, speech: bytes, text: str, stream: str) -> None:
        """The tokens make the text, and each says its bytes."""
        answer = self.ask(server, speech, ("include[]", "logprobs"), ("stream", stream))
        body = events_of(answer)[-1] if stream == "true" else body_of(answer)
        assert "".join("".join(one["token"] for one in body["logprobs"]).split()) == "".join(text.split())
        for one in body["logprobs"]:
            assert list(one) == ["token", "bytes", "logprob"]
            assert bytes(one["bytes"]).decode() == one["token"]
            assert one["logprob"] <= 0

    @pytest.mark.parametrize("name", ["json", "verbose_json", "text"])
    def test_translations(self, server: Server, speech: bytes, can: dict[str, Any], name: str) -> None:
        """English text, or a refusal that names the model, as no field says what to do."""
        answer = self.ask(server, speech, ("response_format", name), path=TRANSLATIONS)
        if "translate" not in can["tasks"]:
            error = error_of(answer, 400)
            assert (error["param"], error["code"]) == ("model", "unsupported_value")
        elif name == "text":
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        else:
            body = body_of(answer)
            (Translation if name == "json" else TranslationVerbose).model_validate(body, strict=True)
            if name == "verbose_json":
                assert (body["task"], body["language"]) == ("translate", "english")
                check_segments(body)

    @pytest.mark.parametrize("name", FORMATS)
    def test_silence(self, server: Server, can: dict[str, Any], name: str) -> None:
        """A good answer without text, in every shape the model has."""
        answer = self.ask(server, silence(), ("response_format", name))
        needs = {"srt": "segment_times", "vtt": "segment_times", "diarized_json": "speakers"}
        if not can.get(needs.get(name, ""), True):
            assert error_of(answer, 400)["param"] == "response_format"
        elif name.endswith("json"):
            body = body_of(answer)
            assert (body["text"], body.get("segments", [])) == ("", [])
        else:
            assert (answer.status_code, answer.text) == (200, "WEBVTT\n\n" if name == "vtt" else "")

    @pytest.mark.parametrize(
        ("parts", "param"),
        [
            ([("temperature", "1.01")], "temperature"),
            ([("temperature", "nan")], "temperature"),
            ([("no_such_field", "1")], "no_such_field"),
            ([("response_format", "yaml")], "response_format"),
            ([("include[]", "logprobs"), ("response_format", "text")], "include"),
            ([("timestamp_granularities[]", "segment")], "timestamp_granularities"),
            ([("stream", "true"), ("response_format", "verbose_json")], "response_format"),
            ([("chunking_strategy[type]", "client_vad")], "chunking_strategy[type]"),
        ],
    )
    def test_what_is_refused_is_named(
        self, server: Server, speech: bytes, parts: list[tuple[str, str]], param: str
    ) -> None:
        """In the envelope, and as the client's exception."""
        assert error_of(self.ask(server, speech, *parts), 400)["param"] == param
        with pytest.raises(openai.BadRequestError) as caught:
            server.client().audio.transcriptions.create(model=self.model, file=speech, extra_body=dict(parts))
        assert caught.value.param == param


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object of a good answer, in which every number is one."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    body: dict[str, Any] = json.loads(answer.content, parse_constant=_refuse)
    return body


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a good stream, after a check of every byte between them."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, rest = answer.content.split(b"\n\n")
    assert rest == b""
    assert all(frame.startswith(b"data: {") and b"\n" not in frame and frame.isascii() for frame in frames)
    return [json.loads(frame.removeprefix(b"data: "), parse_constant=_refuse) for frame in frames]


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, checked for what all of them share."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert list(answer.json()) == ["error"]
    error: dict[str, Any] = answer.json()["error"]
    assert list(error) == ["message", "type", "param", "code", "x_asr"]
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert "Traceback" not in error["message"]
    return error


def check_segments(body: dict[str, Any]) -> None:
    """The segments of a verbose answer: complete, in order, inside the audio, and all of its text."""
    segments = body["segments"]
    assert [segment["id"] for segment in segments] == list(range(len(segments)))
    for segment in segments:
        assert {name: type(value) for name, value in segment.items()} == SEGMENT
        assert 0 <= segment["start"] <= segment["end"] <= round(body["duration"], 3)
        assert 0 <= 10 * segment["seek"] <= 1000 * segment["start"]
        assert segment["avg_logprob"] <= 0
        assert 0 <= segment["no_speech_prob"] <= 1
        assert segment["text"].strip()
    starts = [segment["start"] for segment in segments]
    assert starts == sorted(starts)
    assert "".join("".join(segment["text"] for segment in segments).split()) == "".join(body["text"].split())


def check_words(body: dict[str, Any]) -> None:
    """The words of a verbose answer: none overlaps the next, and they are all of its text."""
    last = 0.0
    for word in body["words"]:
        assert list(word) == ["word", "start", "end"]
        assert last <= word["start"] < word["end"] <= round(body["duration"], 3)
        last = word["end"]
    assert "".join("".join(word["word"] for word in body["words"]).split()) == "".join(body["text"].split())


def silence() -> bytes:
    """One second of it, as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(16_000)
        output.writeframes(bytes(2 * 16_000))
    return file.getvalue()


def _seconds(groups: tuple[str, ...]) -> float:
    hours, minutes, seconds, milliseconds = map(int, groups)
    return 3600 * hours + 60 * minutes + seconds + milliseconds / 1000


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
