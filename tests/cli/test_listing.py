"""What is installed, and what is wrong with it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import pytest

FAKE = {
    "name": "fake",
    "aliases": ["fake-tones"],
    "plugin": "asr-fake",
    "checkpoint": "testing/fake",
    "license": "Apache-2.0",
    "summary": "reads text from tones, for tests",
    "clip_seconds": 60.0,
    "languages": [],
    "can": ["segment times", "speakers", "behaviour"],
}


def test_models(cli: Any) -> None:
    header, row = cli("models").stdout.splitlines()
    assert header.split() == ["NAME", "CLIP", "LANGUAGES", "CAN", "LICENSE", "PLUGIN", "CHECKPOINT"]
    assert [cell.strip() for cell in row.split("  ") if cell] == [
        "fake",
        "60 s",
        "-",
        "segment times, speakers, behaviour",
        "Apache-2.0",
        "asr-fake",
        "testing/fake",
    ]


def test_models_for_programs(cli: Any) -> None:
    assert json.loads(cli("models", "--json").stdout) == [FAKE]


def test_no_models(cli: Any) -> None:
    result = cli("--plugins-block", "fake", "models")
    assert result.exit_code == 0
    assert result.stdout.startswith("No plugin with a model is installed")


def test_plugins(cli: Any) -> None:
    result = cli("plugins", "list")
    assert result.exit_code == 0
    rows = [line.split(maxsplit=7) for line in result.stdout.splitlines()]
    assert rows[0] == ["PLUGIN", "DISTRIBUTION", "VERSION", "MODELS", "ENGINES", "ALIGNERS", "DETECTORS", "HOOKS"]
    assert rows[1][:5:4] == ["embedded", "torch"]
    assert rows[2][:1] + rows[2][6:7] == ["vad", "energy,"]
    assert rows[3][:7] == ["fake", "asr-fake", "0.1", "fake", "-", "-", "-"]
    assert "prepare_clip" in rows[3][7]


def test_a_broken_plugin_stands_out_and_breaks_nothing(cli: Any) -> None:
    result = cli("plugins", "list", broken=True)
    assert result.exit_code == 0
    assert "\n! broken " in result.stdout
    assert "\n! broken (asr-broken) is not used: " in result.stdout
    assert "No module named 'nowhere'" in result.stdout
    assert "\nfake " in result.stdout


def test_plugins_for_programs(cli: Any) -> None:
    records = {record["name"]: record for record in json.loads(cli("plugins", "list", "--json", broken=True).stdout)}
    assert set(records) >= {"embedded", "fake", "broken"}
    assert records["fake"]["error"] is None
    assert records["fake"]["models"] == ["fake"]
    assert "nowhere" in records["broken"]["error"]
    assert records["embedded"]["engines"] == ["torch"]
    assert records["vad"]["detectors"] == ["energy", "silero"]


def test_a_blocked_plugin_says_why(cli: Any) -> None:
    result = cli("--plugins-block", "other,fake", "plugins", "list")
    assert "- fake (asr-fake) is blocked: named in the block list" in result.stdout
    assert "the block list names 'other', which is not installed" in result.stdout


@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 1)])
def test_strict_fails_when_a_plugin_is_broken(cli: Any, broken: bool, code: int) -> None:
    listed = cli("--strict-plugins", "plugins", "list", broken=broken)
    assert listed.exit_code == code
    assert ("! broken" in listed.stdout) == broken
    assert cli("--strict-plugins", "models", broken=broken).exit_code == code


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        (("--plugins-allow", "asr-fake"), True),
        (("--plugins-allow", "other", "--plugins-allow", "fake"), True),
        (("--plugins-allow", "other, fake"), True),
        (("--plugins-allow", "other"), False),
        (("--plugins-block", "asr-fake"), False),
        (("--plugins-block", "other"), True),
    ],
)
def test_which_plugins_are_loaded(cli: Any, arguments: tuple[str, ...], listed: bool) -> None:
    assert json.loads(cli(*arguments, "models", "--json").stdout) == ([FAKE] if listed else [])


def test_serving_an_unknown_model(cli: Any) -> None:
    result = cli("serve", "--model", "fakee", "--port", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no installed plugin knows the model 'fakee'")


def test_serving_one_model_twice(cli: Any) -> None:
    result = cli("serve", "--model", "fake", "--model", "fake-tones", "--port", "0")
    assert result.exit_code == 1
    assert "'fake-tones' means 'fake', which is served already" in result.stderr


def test_serving_where_somebody_else_does(cli: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = cli("serve", "--model", "fake", "--port", port)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: cannot listen on 127.0.0.1 port {port}: ")


@pytest.mark.parametrize("arguments", [("serve",), ("serve", "--model", "fake", "--port", "70000"), ("dance",)])
def test_wrong_usage(cli: Any, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments).exit_code == 2


@pytest.mark.parametrize("command", [(), ("transcribe",), ("serve",), ("models",), ("plugins",), ("plugins", "list")])
def test_help(cli: Any, command: tuple[str, ...]) -> None:
    result = cli(*command, "--help")
    assert result.exit_code == 0
    assert "asr-core " + " ".join(command) in result.stdout


def test_help_loads_nothing_heavy() -> None:
    code = """
import atexit, sys
atexit.register(lambda: print(sorted({"torch", "transformers", "av", "starlette", "hypercorn"} & set(sys.modules))))
sys.argv = ["asr-core", "--help"]
from asr_core.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
