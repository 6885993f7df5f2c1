"""``chunking_strategy``: what is taken, what is refused by which name, and that its three parameters are honoured."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from asr_core.testing import tones
from asr_core.testing.http_contract import body_of, error_of
from asr_core.testing.server import Server

VAD = {"type": "server_vad", "prefix_padding_ms": 300, "silence_duration_ms": 200, "threshold": 0.5}
WORDS = "abcdefghijklmnopqrst"
"""1.63 s: 30 ms of silence, then 50 ms of tone and 30 of silence for each."""


def silence(seconds: float) -> npt.NDArray[np.float32]:
    return np.zeros(round(seconds * tones.RATE), np.float32)


@pytest.fixture(scope="module")
def thrice(wav: Any) -> bytes:
    """Words, silent from 1.60 to 2.60, words, silent from 4.17 to 4.57, words until 6.14."""
    sound: bytes = wav(WORDS, silence(0.94), WORDS, silence(0.34), WORDS)
    return sound


def ask(server: Server, *parts: tuple[str, Any], file: bytes) -> Any:
    return server.post(("model", "fake"), *parts, ("file", file))


def skipped(server: Server, file: bytes, **changed: Any) -> list[tuple[float, float]]:
    """Seconds that are not decoded when the file comes with this ``server_vad``."""
    strategy = json.dumps(VAD | changed)
    answer = server.post(("model", "fake"), ("chunking_strategy", strategy), ("file", file), path="/v1/audio/plan")
    clips = body_of(answer)["clips"]
    return [(round(clip["start"], 2), round(clip["end"], 2)) for clip in clips if not clip["decoded"]]


@pytest.mark.parametrize("value", ["auto", ""])
def test_left_to_the_policy(server: Server, thrice: bytes, value: str) -> None:
    body = body_of(ask(server, ("chunking_strategy", value), file=thrice))
    assert body["text"] == WORDS * 3
    assert [stretch["state"] for stretch in body["x_asr"]["coverage"]] == ["decoded"]


def test_as_the_client_sends_it(server: Server, thrice: bytes) -> None:
    client = server.client()
    answer = client.audio.transcriptions.create(model="fake", file=thrice, chunking_strategy=VAD)
    assert answer.text == " ".join([WORDS] * 3)
    answer = client.audio.transcriptions.create(model="fake", file=thrice, chunking_strategy="auto")
    assert answer.text == WORDS * 3


@pytest.mark.parametrize("sent", [VAD, {"type": "server_vad"}, VAD | {"threshold": 0.5, "prefix_padding_ms": 300}])
def test_as_json_with_openais_defaults(server: Server, thrice: bytes, sent: dict[str, Any]) -> None:
    coverage = body_of(ask(server, ("chunking_strategy", json.dumps(sent)), file=thrice))["x_asr"]["coverage"]
    assert "silent" in {stretch["state"] for stretch in coverage}
    assert coverage == body_of(ask(server, ("chunking_strategy", json.dumps(VAD)), file=thrice))["x_asr"]["coverage"]


def test_a_pause_ends_a_clip_when_it_is_as_long_as_asked_for(server: Server, thrice: bytes) -> None:
    assert [start for start, _ in skipped(server, thrice, silence_duration_ms=900, prefix_padding_ms=0)] == [1.9]
    assert [start for start, _ in skipped(server, thrice, silence_duration_ms=300, prefix_padding_ms=0)] == [1.9, 4.37]
    assert skipped(server, thrice, silence_duration_ms=1100) == []


def test_so_much_is_kept_before_speech(server: Server, thrice: bytes) -> None:
    ends = {
        padding: skipped(server, thrice, silence_duration_ms=900, prefix_padding_ms=padding)[0][1]
        for padding in (0, 100, 500)
    }
    assert ends == {0: 2.6, 100: 2.5, 500: 2.1}


def test_how_sure_of_speech_to_be(server: Server, wav: Any) -> None:
    """Tones 26 dB softer than the others are speech to who is not so sure of it."""
    said = tones.speak(WORDS)
    softly = wav(said, said * np.float32(0.05), said)
    assert len(skipped(server, softly, threshold=0.9, silence_duration_ms=900)) == 1
    assert skipped(server, softly, threshold=0.3, silence_duration_ms=900) == []


def test_streamed_it_is_the_same(server: Server, thrice: bytes) -> None:
    parts = [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[silence_duration_ms]", "300")]
    streamed = ask(server, ("stream", "true"), *parts, file=thrice).text
    done = json.loads(streamed.rstrip().rpartition("data: ")[2])
    assert done["text"] == body_of(ask(server, *parts, file=thrice))["text"] == " ".join([WORDS] * 3)


STRATEGY = "chunking_strategy"
TYPED = (f"{STRATEGY}[type]", "server_vad")


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ([(STRATEGY, "vad")], STRATEGY),
        ([(STRATEGY, "AUTO")], STRATEGY),
        ([(STRATEGY, "null")], STRATEGY),
        ([(STRATEGY, "[]")], STRATEGY),
        ([(STRATEGY, "[" * 5000)], STRATEGY),
        ([(STRATEGY, "{}")], STRATEGY),
        ([(STRATEGY, '{"type": "semantic_vad"}')], f"{STRATEGY}[type]"),
        ([(STRATEGY, '{"type": "server_vad", "threshold": NaN}')], f"{STRATEGY}[threshold]"),
        ([(STRATEGY, '{"type": "server_vad", "threshold": 1e999}')], f"{STRATEGY}[threshold]"),
        ([(STRATEGY, '{"type": "server_vad", "threshold": true}')], f"{STRATEGY}[threshold]"),
        ([(STRATEGY, '{"type": "server_vad", "speed": 1}')], f"{STRATEGY}[speed]"),
        ([(STRATEGY, '{"type": "server_vad", "\\ud800": 1}')], f"{STRATEGY}[\ud800]"),
        ([(STRATEGY, '{"type": ' * 600 + "1" + "}" * 600)], f"{STRATEGY}[type]"),
        ([(STRATEGY, '{"type": ' + "[" * 900 + "]" * 900 + "}")], f"{STRATEGY}[type]"),
        ([(STRATEGY, b"auto")], STRATEGY),
        ([(STRATEGY, "auto")] * 2, STRATEGY),
        ([(STRATEGY, "auto"), TYPED], STRATEGY),
        ([TYPED] * 2, f"{STRATEGY}[type]"),
        ([TYPED, *[(f"{STRATEGY}[threshold]", "0.5")] * 2], f"{STRATEGY}[threshold]"),
        ([(STRATEGY, '{"type": "server_vad", "threshold": 0, "threshold": 1}')], f"{STRATEGY}[threshold]"),
        ([(f"{STRATEGY}[threshold]", "0.5")], STRATEGY),
        ([TYPED, (f"{STRATEGY}[threshold]", "1.5")], f"{STRATEGY}[threshold]"),
        ([TYPED, (f"{STRATEGY}[threshold]", "-0.1")], f"{STRATEGY}[threshold]"),
        ([TYPED, (f"{STRATEGY}[threshold]", b"0.5")], f"{STRATEGY}[threshold]"),
        ([TYPED, (f"{STRATEGY}[prefix_padding_ms]", "-1")], f"{STRATEGY}[prefix_padding_ms]"),
        ([TYPED, (f"{STRATEGY}[prefix_padding_ms]", "9" * 4000)], f"{STRATEGY}[prefix_padding_ms]"),
        ([TYPED, (f"{STRATEGY}[silence_duration_ms]", "0.5")], f"{STRATEGY}[silence_duration_ms]"),
        ([TYPED, (f"{STRATEGY}[speed]", "1")], f"{STRATEGY}[speed]"),
        ([(f"{STRATEGY}[type", "server_vad")], f"{STRATEGY}[type"),
        ([(f"{STRATEGY}[type][x]", "server_vad")], f"{STRATEGY}[type][x]"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/plan"])
def test_what_is_none(server: Server, wav: Any, parts: list[tuple[str, Any]], param: str, path: str) -> None:
    error = error_of(server.post(("model", "able"), *parts, ("file", wav("ab cd")), path=path), 400)
    assert error["param"] == param
    assert error["code"] in ("invalid_value", "unknown_parameter")
    assert "UploadFile" not in error["message"]
