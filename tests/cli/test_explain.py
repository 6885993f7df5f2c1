"""``asr-core explain``: numbers with their owners, cuts with their reasons, and no weights."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asr_core.testing import fake, tones


def told(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def number(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [number for number in document["numbers"] if number["name"] == name]
    return found


@pytest.fixture(autouse=True)
def weightless(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(fake, "ScriptedDecoder", refuse)


@pytest.mark.parametrize("model", ["moss-transcribe-diarize", "qwen3-asr", "fun-asr-nano"])
def test_a_model_that_is_not_on_this_machine(model: str) -> None:
    command = [sys.executable, "-m", "asr_core.cli", "explain", "--model", model, "--duration", "7200", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["clips"][-1]["end"] == 7200


def test_a_table_for_people(cli: Any) -> None:
    result = cli("explain", "--model", "fake", "--duration", "130")
    assert result.exit_code == 0
    numbers, cuts = result.stdout.split("\n\n")
    header, *rows = ([cell.strip() for cell in line.split("  ") if cell] for line in numbers.splitlines())
    assert header == ["LAYER", "NUMBER", "VALUE", "OWNER", "CHANGED BY", "SOURCE"]
    source = "asr_core.testing.fake:native_limit (the number of time tokens)"
    assert ["native_limit", "seconds", "60.0", "asr-fake", "none: a fact of the checkpoint", source] in rows
    knob = "--chunk carry_text=VALUE"
    assert ["chunk_policy", "carry_text", "false", "asr-fake", knob, "asr_core.testing.fake:chunk_policy"] in rows
    assert "latest" in cuts.splitlines()[0]
    assert [line.split()[:4] for line in cuts.splitlines()[2:]] == [
        ["0.00", "60.00", "60.00", "decode"],
        ["60.00", "120.00", "60.00", "decode"],
        ["120.00", "130.00", "10.00", "decode"],
    ]


def test_every_limit_and_policy_is_there(cli: Any) -> None:
    document = told(cli("explain", "--model", "fake-tones", "--duration", "1", "--json"))
    names: dict[str, list[str]] = {}
    for row in document["numbers"]:
        names.setdefault(row["layer"], []).append(row["name"])
    assert names == {
        "native_limit": ["sample_rate", "seconds", "context_tokens", "audio_tokens_per_second", "clip_seconds"],
        "chunk_policy": [
            *("target_s", "search_s", "overlap_s", "min_tail_s", "silence_floor", "skip_s", "pad_s", "parallel"),
            *("carry_text", "least_rate"),
        ],
        "upload_limits": ["max_bytes", "min_seconds", "max_seconds", "max_decode_seconds"],
    }
    assert document["model"] == "fake"


def test_of_a_file_the_cuts_are_exact(cli: Any) -> None:
    said = tones.speak("x" * 25)
    with wave.open("a.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(tones.RATE)
        sound = np.concatenate([said, np.zeros(8 * tones.RATE, np.float32), said])
        file.writeframes((sound * 32767).astype(np.int16).tobytes())
    document = told(cli("explain", "a.wav", "--model", "fake", "--json"))
    assert (document["seconds"], document["exact"]) == (12.06, True)
    assert [(clip["decoded"], clip["reason"]) for clip in document["clips"]] == [
        (True, "silence"),
        (False, "silence"),
        (True, "end"),
    ]
    # Sound ends at 2.00 and begins again at 10.06; 0.3 s of silence is left beside either.
    assert [round(clip["end"], 2) for clip in document["clips"]] == [2.3, 9.76, 12.06]
    assert "skip    silence" in cli("explain", "a.wav", "--model", "fake").stdout


def test_an_override_is_the_operators(cli: Any) -> None:
    chunk = ("--chunk", "target_s=9", "--chunk", "fake:target_s=20", "--chunk", "parallel=2", "--chunk", "pad_s=0.3")
    document = told(cli("explain", "--model", "fake", "--duration", "50", "--json", *chunk))
    assert (number(document, "target_s")["value"], number(document, "target_s")["owner"]) == (20.0, "operator")
    assert (number(document, "parallel")["value"], number(document, "parallel")["owner"]) == (2, "operator")
    assert number(document, "seconds")["value"] == 60.0
    assert [clip["end"] for clip in document["clips"]] == [20.0, 40.0, 50.0]
    none = told(cli("explain", "--model", "fake", "--duration", "50", "--json", *chunk, "--chunk", "target_s=none"))
    assert [clip["end"] for clip in none["clips"]] == [50.0]


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        ("target=20", "no field of a chunk policy is called 'target' (did you mean target_s?)"),
        ("target_s=twenty", "target_s must be a finite number or none, not 'twenty'"),
        ("target_s=61", "target_s is 61 s, above the native limit of 60 s (the number of time tokens) of 'fake'"),
        ("carry_text=true", "carry_text needs a model to whom a prompt is previous text"),
        ("parallel=0", "parallel must be at least 1, not 0"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "transcribe", "serve"])
def test_an_override_that_does_not_fit(cli: Any, say: Any, command: str, chunk: str, says: str) -> None:
    say("a.wav", "abc")
    more = {"explain": ["a.wav"], "transcribe": ["a.wav"], "serve": ["--port", "0"]}[command]
    result = cli(command, *more, "--model", "fake", "--chunk", chunk)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {says}")


@pytest.mark.parametrize("command", ["explain", "transcribe", "serve"])
@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        ("target_s", "'target_s' is no NAME=VALUE"),
        ("other:target_s=20", "--chunk names the model 'other'; there is fake"),
    ],
)
def test_an_override_of_nothing(cli: Any, command: str, chunk: str, says: str) -> None:
    more = () if command == "serve" else ("a.wav",)
    Path("a.wav").touch()
    result = cli(command, *more, "--model", "fake", "--chunk", chunk)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_detector_nobody_brings(cli: Any) -> None:
    result = cli("explain", "--model", "fake", "--duration", "1", "--vad", "ears")
    assert result.exit_code == 1
    assert "no installed plugin brings the detector 'ears'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says", "knob"),
    [
        (("--duration", "14401"), "longer than the 14400 s", "--max-seconds"),
        (("--duration", "nan"), "longer than the 14400 s", "--max-seconds"),
        (("--duration", "0"), "0.1 s is the least taken", "--min-seconds"),
        (("a.wav", "--max-seconds", "1"), "longer than the 1 s", "--max-seconds"),
        (("a.wav", "--min-seconds", "5"), "5 s is the least taken", "--min-seconds"),
        (("a.wav", "--max-bytes", "1000"), "content size limit (1000)", None),
    ],
)
def test_what_an_endpoint_would_refuse_is_refused(
    cli: Any, say: Any, arguments: tuple[str, ...], says: str, knob: str | None
) -> None:
    say("a.wav", "x" * 25)
    result = cli("explain", "--model", "fake", *arguments)
    assert result.exit_code == 1
    assert result.stdout.startswith("LAYER")
    assert "\nrefused by upload_limits: " in result.stdout
    assert says in result.stdout
    document = cli("explain", "--model", "fake", "--json", *arguments)
    assert document.exit_code == 1
    refused = json.loads(document.stdout)["refused"]
    assert (refused["layer"], refused["knob"]) == ("upload_limits", knob)


@pytest.mark.parametrize("arguments", [(), ("a.wav", "--duration", "1"), ("missing.wav",), ("--duration", "long")])
def test_wrong_usage(cli: Any, arguments: tuple[str, ...]) -> None:
    Path("a.wav").touch()
    assert cli("explain", "--model", "fake", *arguments).exit_code == 2


def test_of_a_length_nothing_heavy_is_imported(fake_model: Path) -> None:
    code = """
import atexit, sys
atexit.register(lambda: print(sorted({"torch", "transformers", "av", "starlette", "librosa"} & set(sys.modules))))
sys.argv = ["asr-core", "--plugins-allow", "asr-fake", "explain", "--model", "fake", "--duration", "90"]
from asr_core.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_real_model_needs_no_torch_either() -> None:
    code = """
import atexit, sys
atexit.register(lambda: print("torch" in sys.modules))
sys.argv = ["asr-core", "explain", "--model", "whisper-base", "--duration", "90"]
from asr_core.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
