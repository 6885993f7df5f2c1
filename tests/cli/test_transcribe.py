"""Files in, text out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def test_the_text_of_one_file_is_all_that_goes_to_stdout(cli: Any, say: Any) -> None:
    say("a.wav", "grüße 你好")
    result = cli("transcribe", "a.wav", "--model", "fake", "--device", "cpu", "--dtype", "float32")
    assert (result.exit_code, result.stdout) == (0, "grüße 你好\n")
    first, last = result.stderr.splitlines()
    assert first == "fake: engine torch, cpu, float32"
    assert last.startswith("1/1 files, 1.1 s of audio in ")
    assert "real-time factor 0." in last


def test_an_option_of_the_model(cli: Any, say: Any) -> None:
    say("a.wav", "abcdefghijklmnop")
    result = cli("transcribe", "a.wav", "--model", "fake", "-f", "json", "--option", "behaviour=speakers")
    assert json.loads(result.stdout)["segments"][0]["speaker"] == "A"


def test_several_files_keep_their_order_under_headers(cli: Any, say: Any) -> None:
    say("b.wav", "second")
    say("a.wav", "first")
    result = cli("transcribe", "a.wav", "b.wav", "a.wav", "--model", "fake")
    assert result.stdout == "==> a.wav <==\nfirst\n==> b.wav <==\nsecond\n==> a.wav <==\nfirst\n"


def test_json_is_a_line_per_file(cli: Any, say: Any) -> None:
    say("a.wav", "one\ntwo")
    say("b.wav", "x")
    result = cli("transcribe", "a.wav", "b.wav", "--model", "fake", "-f", "json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["file"], line["text"]) for line in lines] == [("a.wav", "one\ntwo"), ("b.wav", "x")]
    (stretch,) = lines[1]["x_asr"]["coverage"]
    assert stretch.items() >= {"start_sample": 0, "end_sample": 1760, "state": "decoded"}.items()


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("srt", "1\n00:00:00,000 --> 00:00:00,270\nabc\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:00.270\nabc\n\n"),
    ],
)
def test_subtitles(cli: Any, say: Any, format_: str, text: str) -> None:
    say("a.wav", "abc")
    assert cli("transcribe", "a.wav", "--model", "fake", "-f", format_).stdout == text


@pytest.mark.parametrize("format_", ["srt", "vtt"])
def test_subtitles_of_several_files_want_a_directory(cli: Any, format_: str) -> None:
    result = cli("transcribe", "a.wav", "b.wav", "--model", "fake", "-f", format_)
    assert result.exit_code == 2
    assert "add --output DIR" in result.stderr


@pytest.mark.parametrize(("format_", "suffix"), [("text", "txt"), ("json", "json"), ("srt", "srt"), ("vtt", "vtt")])
def test_a_directory_gets_a_file_each(cli: Any, say: Any, format_: str, suffix: str) -> None:
    say("in/a.b.wav", "ä")
    say("c.wav", "second")
    result = cli("transcribe", "in/a.b.wav", "c.wav", "--model", "fake", "-f", format_, "-o", "new/out")
    assert (result.exit_code, result.stdout) == (0, "")
    assert {path.name for path in Path("new/out").glob("[!.]*")} == {f"a.b.{suffix}", f"c.{suffix}"}
    assert "ä" in Path(f"new/out/a.b.{suffix}").read_text(encoding="utf-8")


def test_no_result_overwrites_another(cli: Any, say: Any) -> None:
    say("x/a.wav", "one")
    say("y/a.mp3", "two")
    result = cli("transcribe", "x/a.wav", "y/a.mp3", "--model", "fake", "-o", "out")
    assert result.exit_code == 2
    assert "x/a.wav and y/a.mp3 would be written to out/a.txt" in result.stderr


def test_a_bad_file_does_not_stop_the_others(cli: Any, say: Any) -> None:
    say("a.wav", "first")
    say("z.wav", "last")
    Path("text.wav").write_text("not audio, whatever its name says")
    result = cli("transcribe", "a.wav", "missing.wav", "text.wav", "z.wav", "--model", "fake")
    assert result.exit_code == 1
    assert result.stdout == "==> a.wav <==\nfirst\n==> z.wav <==\nlast\n"
    first, last, missing, text, summary = result.stderr.splitlines()[1:]
    assert first.startswith("a.wav: 0.4 s of audio in ")
    assert last.startswith("z.wav: 0.3 s of audio in ")
    assert missing == "missing.wav: No such file or directory"
    assert text.startswith("text.wav: Invalid file format.")
    assert summary.startswith("2/4 files, 0.8 s of audio in ")


def test_a_directory_that_cannot_be_written(cli: Any, say: Any) -> None:
    say("a.wav", "x")
    Path("taken").write_text("a file")
    result = cli("transcribe", "a.wav", "--model", "fake", "-o", "taken")
    assert result.exit_code == 2
    assert "Directory 'taken' is a file" in result.stderr
    result = cli("transcribe", "a.wav", "--model", "fake", "-o", "taken/out")
    assert result.exit_code == 1
    assert "taken/out/.asr-core.jsonl': Not a directory" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--prompt", "x", "error: model 'fake' takes no prompt\n"),
        ("--language", "de", "error: model 'fake' takes no language\n"),
        ("--task", "translate", "error: model 'fake' cannot translate; it can transcribe\n"),
        ("--temperature", "7", "error: temperature is 7.0, must be 0 to 1\n"),
        ("--option", "behaviour=sing", "error: behaviour must be one of plain, "),
        ("--option", "behaviour=1", "error: behaviour must be of type string\n"),
        ("--option", "mood=1", "error: model 'fake' has no option 'mood'; it knows behaviour\n"),
        ("--device", "abacus", "error: device 'abacus' cannot be used here"),
        ("--dtype", "int3", "error: unknown dtype 'int3'; choose auto, float32, bfloat16, float16, int8\n"),
        ("--dtype", "int8", "error: fake cannot be computed in int8\n"),
        ("--engine", "steam", "error: no installed plugin brings the engine 'steam'; there are: torch"),
    ],
)
def test_what_no_file_could_mend_is_said_once(cli: Any, say: Any, option: str, value: str, says: str) -> None:
    say("a.wav", "x")
    result = cli("transcribe", "a.wav", "a.wav", "--model", "fake", option, value)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count(says) == 1
    assert "Traceback" not in result.stderr


def test_an_unknown_model_is_answered_with_near_names(cli: Any, say: Any) -> None:
    say("a.wav", "x")
    result = cli("transcribe", "a.wav", "--model", "fakee")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no installed plugin knows the model 'fakee'")
    assert "fake" in result.stderr.splitlines()[0].replace("'fakee'", "")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("a.wav",),
        ("--model", "fake"),
        ("a.wav", "--model", "fake", "-f", "docx"),
        ("a.wav", "--model", "fake", "--temperature", "warm"),
        ("a.wav", "--model", "fake", "--task", "sing"),
        ("a.wav", "--model", "fake", "--option", "behaviour"),
    ],
)
def test_wrong_usage(cli: Any, arguments: tuple[str, ...]) -> None:
    result = cli("transcribe", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: asr-core transcribe" in result.stderr


def test_as_a_process_of_its_own(cli: Any, say: Any) -> None:
    say("a.wav", "whole")
    command = [sys.executable, "-m", "asr_core.cli", "transcribe", "a.wav", "--model", "fake"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n")
