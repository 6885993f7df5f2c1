"""Words timed by an aligner of another plugin, named by the operator: over HTTP, in this process, on a terminal."""

from __future__ import annotations

import importlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from asr_core.api import load
from asr_core.cli import main
from asr_core.errors import PluginError, UnsupportedValueError
from asr_core.plugins import Plugins
from asr_core.testing import tones
from asr_core.testing.distributions import write_distribution
from asr_core.testing.server import Server
from asr_core.types import Word

RULERS = '''
    """Aligners: one that gives a character 80 ms, and others that fail."""

    import threading

    import torch

    from asr_core import AlignerCard, hookimpl
    from asr_core.errors import UnsupportedValueError
    from asr_core.types import Word


    class Ruler:
        closed = 0
        seen = []

        def __init__(self, device, dtype):
            self.placed = (device, dtype)

        def align(self, clip, text, language):
            self.seen.append((threading.current_thread().name, torch.is_grad_enabled(), clip.duration, text, language))
            if text == "refuse":
                raise UnsupportedValueError("no words of these", param="timestamp_granularities")
            if text == "break":
                raise KeyError(text)
            if text == "odd":
                return ["odd"]
            words, at = [], 0
            for word in text.split(" "):
                words.append(Word(80 * at, 80 * (at + len(word)), word))
                at += len(word) + 1
            return words

        def close(self):
            Ruler.closed += 1


    @hookimpl
    def register_services(register):
        register(AlignerCard("ruler", "80 ms a character", Ruler))
        register(AlignerCard("broken", "cannot start", lambda device, dtype: {}["weights"]))
'''

HELLO = [Word(0, 400, "hello"), Word(480, 880, "world")]


@pytest.fixture(scope="module")
def rulers(fake_model: Path) -> Path:
    write_distribution(fake_model, "asr-rulers", {"asr_rulers": RULERS}, {"rulers": "asr_rulers"})
    importlib.invalidate_caches()
    return fake_model


@pytest.fixture(scope="module")
def plugins(rulers: Path) -> Plugins:
    return Plugins.discover(allow=["asr-fake", "asr-rulers"])


@pytest.fixture(scope="module")
def ruled(rulers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    environment = {**os.environ, "ASR_CORE_PLUGINS_ALLOW": "asr-fake,asr-rulers"}
    arguments = ("--model", "fake", "--aligner", "ruler", "--dtype", "float32")
    server = Server(tmp_path_factory.mktemp("ruled"), environment, *arguments)
    yield server
    server.close()


def test_words_over_http(ruled: Server, wav: Callable[[str], bytes]) -> None:
    file = ("file", wav("hello world"))
    asked = [("response_format", "verbose_json"), ("timestamp_granularities[]", "word")]
    answer = ruled.post(("model", "fake"), *asked, file)
    assert answer.status_code == 200
    assert answer.json()["words"] == [
        {"word": "hello", "start": 0.0, "end": 0.4},
        {"word": "world", "start": 0.48, "end": 0.88},
    ]
    plain = ruled.post(("model", "fake"), ("response_format", "verbose_json"), file).json()
    assert "words" not in plain
    assert plain["text"] == answer.json()["text"] == "hello world"
    (model,) = ruled.http.get("/v1/models").json()["data"]
    assert model["x_asr"]["capabilities"]["word_times"] is True
    assert "fake: engine torch, cpu, float32, words timed by ruler\n" in ruled.output


@pytest.mark.parametrize(
    ("text", "status", "code", "param", "message"),
    [
        ("refuse", 400, "unsupported_value", "timestamp_granularities", "no words of these"),
        ("break", 500, "internal_error", None, "aligner 'ruler' raised KeyError: 'break'"),
        ("odd", 500, None, None, "aligner 'ruler' answered with a str, which is no Word"),
    ],
)
def test_what_an_aligner_raises_is_that_requests_alone(
    ruled: Server,
    wav: Callable[[str], bytes],
    text: str,
    status: int,
    code: str | None,
    param: str | None,
    message: str,
) -> None:
    words = [("response_format", "verbose_json"), ("timestamp_granularities[]", "word")]
    answer = ruled.post(("model", "fake"), *words, ("file", wav(text)))
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert message in (error["message"] if status == 400 else ruled.output)
    assert ruled.post(("model", "fake"), *words, ("file", wav("hello"))).json()["words"][0]["word"] == "hello"


def test_words_in_this_process(plugins: Plugins) -> None:
    import asr_rulers

    with load("fake", aligner="ruler", device="cpu", dtype="float32", plugins=plugins) as transcriber:
        transcript = transcriber.transcribe(tones.speak("hello world"), rate=tones.RATE, times=["word"])
        assert list(transcript.words) == HELLO
        assert transcriber.served.aligner.placed == ("cpu", "float32")
        assert asr_rulers.Ruler.closed == 0
    assert asr_rulers.Ruler.closed == 1
    ((thread, gradients, seconds, text, language),) = asr_rulers.Ruler.seen
    assert thread.startswith("asr-compute")
    assert thread != threading.current_thread().name
    assert (gradients, text, language) == (False, "hello world", None)
    assert seconds == transcript.duration


def test_without_one_a_model_without_times_has_no_words(plugins: Plugins) -> None:
    with load("fake", plugins=plugins) as transcriber, pytest.raises(UnsupportedValueError):
        transcriber.transcribe(tones.speak("hello"), rate=tones.RATE, times=["word"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rule", "no installed plugin brings the aligner 'rule'; there are: broken, ruler"),
        ("broken", "aligner 'broken' cannot start: KeyError: 'weights'"),
    ],
)
def test_an_aligner_that_is_not_there_stops_loading(plugins: Plugins, name: str, told: str) -> None:
    with pytest.raises(PluginError) as raised:
        load("fake", aligner=name, plugins=plugins)
    assert raised.value.message.startswith(told)


def test_words_on_a_terminal(
    rulers: Path, tmp_path: Path, wav: Callable[[str], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASR_CORE_PLUGINS_ALLOW", "asr-fake,asr-rulers")
    (tmp_path / "a.wav").write_bytes(wav("hello world"))
    command = ["transcribe", str(tmp_path / "a.wav"), "--model", "fake", "--aligner", "ruler"]
    result = CliRunner().invoke(main, [*command, "-f", "json"])
    assert json.loads(result.stdout)["words"] == [
        {"start": word.start_ms / 1000, "end": word.end_ms / 1000, "text": word.text} for word in HELLO
    ]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "--aligner times words, and only -f json has a place for them" in refused.stderr
    listed = CliRunner().invoke(main, ["plugins", "list"])
    assert "broken, ruler" not in listed.stderr
    assert "ruler, broken" in listed.stdout
    records = {one["name"]: one for one in json.loads(CliRunner().invoke(main, ["plugins", "list", "--json"]).stdout)}
    assert records["rulers"]["aligners"] == ["ruler", "broken"]
