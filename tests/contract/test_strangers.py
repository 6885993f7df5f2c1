"""Plugins of strangers, written from public names alone: found, opened, served, and in nobody's way."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import torch

from asr_core.api import Transcriber, load
from asr_core.testing import tones
from asr_core.testing.conformance import ModelConformance
from asr_core.testing.distributions import write_distribution
from asr_core.types import Samples

PLUGINS = Path(__file__).parent / "plugins"
SOUND = tones.speak("any sound will do")

pytestmark = pytest.mark.usefixtures("strangers")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both plugins installed."""
    directory = tmp_path_factory.mktemp("strangers")
    for name in ("parrot", "ctc"):
        module = f"asr_{name}_of_a_stranger"
        write_distribution(directory, f"asr-{name}", {module: (PLUGINS / f"{name}.py").read_text()}, {name: module})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        patch.setenv("PYTHONPATH", f"{directory}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep))
        importlib.invalidate_caches()
        yield directory


class TestParrot(ModelConformance):
    model = "parrot"

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> Samples:
        return SOUND


class TestCtc(ModelConformance):
    model = "random-ctc"

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> Samples:
        return SOUND

    def test_times_of_tokens_are_segments(self, transcriber: Transcriber) -> None:
        """Frames of this architecture are 20 ms; leading silence moves the first token."""
        transcript = transcriber.transcribe(SOUND, times=["segment"])
        (segment,) = transcript.segments
        assert 0 <= segment.start_ms < segment.end_ms <= 1000 * transcript.duration
        assert segment.start_ms % 20 == segment.end_ms % 20 == 0
        assert transcript.text


@pytest.fixture(scope="module")
def parrot(strangers: Path) -> Iterator[Transcriber]:
    with load("polly") as transcriber:
        yield transcriber


def test_a_stranger_decodes_as_generate_does(parrot: Transcriber) -> None:
    served = parrot.served
    decoder, encoder = served.model.weights.decoder, served.model.weights.encoder
    loudness = np.abs(np.pad(SOUND, (0, -len(SOUND) % 1600)).reshape(-1, 1600)).mean(axis=1, keepdims=True)
    with torch.no_grad():
        module, head = decoder._module, decoder._head
        embeds = torch.cat([module.embed_tokens(torch.tensor([28])), encoder(torch.from_numpy(loudness))])
        ids: list[int] = []
        while len(ids) < 8 and 27 not in ids:
            ids.append(int(head(module(inputs_embeds=embeds[None], use_cache=False).last_hidden_state[0, -1]).argmax()))
            embeds = torch.cat([embeds, module.embed_tokens(torch.tensor(ids[-1:]))])
    said = "".join("abcdefghijklmnopqrstuvwxyz "[token] for token in ids if token < 27)
    assert said.strip()
    assert parrot.transcribe(SOUND).text == said.strip()


@pytest.fixture(scope="module")
def server(strangers: Path) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "asr_core.cli",
        "serve",
        "--port",
        "0",
        "--model",
        "parrot",
        "--model",
        "random-ctc",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "http://" in line:
                yield "http://" + line.split("http://")[1].split()[0]
                break
        process.terminate()
        process.stdout.read()
    assert process.returncode == 0


def test_strangers_are_listed(strangers: Path) -> None:
    command = [sys.executable, "-m", "asr_core.cli", "models", "--json"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {"parrot", "random-ctc"} <= {model["name"] for model in json.loads(listing.stdout)}


@pytest.mark.parametrize("model", ["parrot", "random-ctc"])
def test_strangers_answer_over_http(server: str, model: str) -> None:
    with load(model) as transcriber:
        expected = transcriber.transcribe(SOUND).text
    wav = _wav(SOUND)
    answer = httpx.post(f"{server}/v1/audio/transcriptions", data={"model": model}, files={"file": wav}, timeout=60)
    assert (answer.status_code, answer.json()["text"]) == (200, expected)
    assert expected
    listed = httpx.get(f"{server}/v1/models").json()["data"]
    assert {entry["id"] for entry in listed} == {"parrot", "random-ctc"}


def _wav(samples: Samples) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV", subtype="FLOAT")
    return file.getvalue()
