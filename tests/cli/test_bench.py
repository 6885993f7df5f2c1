"""The benchmark's command: the fake model here and on a server, what it refuses, and its exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from asr_core.testing.server import Server

TEXTS = ("first text", "another one", "third")


@pytest.fixture
def bench(cli: Callable[..., Result], say: Callable[[str, str], None]) -> Callable[..., Result]:
    """Run it over three texts in tones, one round of three requests, unless told otherwise."""
    for number, text in enumerate(TEXTS):
        say(f"sounds/{number}.wav", text)
    lines = [{"path": f"{number}.wav", "language": None, "reference": text} for number, text in enumerate(TEXTS)]
    Path("sounds/manifest.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def run(*arguments: Any, repeats: int = 1, concurrency: str = "1,2") -> Result:
        return cli(
            "bench", "--manifest", "sounds/manifest.jsonl", "--model", "fake", "--requests", 3,
            "--repeats", repeats, "--concurrency", concurrency, *arguments,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def server(fake_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    (directory / "keys").write_text("secret\n")
    arguments = ("--model", "fake", "--dtype", "float32", "--api-key-file", str(directory / "keys"))
    server = Server(directory, {**os.environ, "ASR_CORE_PLUGINS_ALLOW": "asr-fake"}, *arguments)
    yield server
    server.close()


def test_the_library(bench: Callable[..., Result]) -> None:
    result = bench("--json", "report.json", "--seed", 7, "--dtype", "float32", repeats=3, concurrency="1, 2,1")
    assert result.exit_code == 0, result.output
    header, one, two, blank, *below = result.stdout.splitlines()
    assert header.split()[:2] == ["CALLERS", "REQUESTS/S"]
    assert (one.split()[0], two.split()[0], blank) == ("1", "2", "")
    assert "target: this process" in below
    assert "seed: 7" in below
    assert result.stderr.splitlines()[0] == "warm-up: 2 requests at once"
    assert result.stderr.splitlines()[1] == "round 1 of 3: 3 requests, 1 at once"
    report = json.loads(Path("report.json").read_text())
    assert [level["callers"] for level in report["levels"]] == [1, 2]
    for level in report["levels"]:
        assert len(level["rounds"]) == 3
        assert level["median"]["requests"] == 9
        assert level["median"]["failed"] == 0
        assert level["median"]["throughput"] > 0
        assert level["median"]["word_errors"] == 0.0
        assert level["median"]["first"] is None
    assert report["dtype"] == "float32"
    assert report["versions"]["asr-fake"]
    assert report["machine"]["cores"] >= 1
    assert report["peak_memory_mib"] >= 0
    assert report["normaliser"] == "plain"


def test_a_server_whose_stream_is_timed(
    bench: Callable[..., Result], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret")
    asked = ("--url", server.url, "--api-key-env", "KEY", "--pid", server.process.pid, "--json", "report.json")
    result = bench(*asked, "--stream")
    assert result.exit_code == 0, result.output
    report = json.loads(Path("report.json").read_text())
    assert (report["target"], report["dtype"], report["engine"]) == (server.url, "float32", "torch")
    assert report["peak_memory_mib"] >= 0
    for level in report["levels"]:
        median = level["median"]
        assert (median["failed"], median["word_errors"]) == (0, 0.0)
        assert 0 < median["first"]["p50"] <= median["latency"]["p50"]
    result = bench("--url", server.url, "--api-key-env", "KEY")
    assert result.exit_code == 0, result.output
    assert "peak memory: not measured" in result.stdout


def test_a_server_that_refuses(bench: Callable[..., Result], server: Server) -> None:
    result = bench("--url", server.url)
    assert result.exit_code == 1
    assert "error: no request of the warm-up was answered: HTTP 401 invalid_api_key: " in result.stderr


def test_nobody_at_the_url(bench: Callable[..., Result]) -> None:
    result = bench("--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: url http://127.0.0.1:1 cannot be reached: ")
    result = bench("--url", "nonsense")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: url ")


def test_one_that_fails_is_counted_and_told(bench: Callable[..., Result], say: Callable[[str, str], None]) -> None:
    """A language the model does not take is that request's failure."""
    lines = Path("sounds/manifest.jsonl").read_text().splitlines()
    lines[1] = lines[1].replace("null", '"de"')
    Path("sounds/manifest.jsonl").write_text("\n".join(lines))
    result = bench("--json", "report.json", repeats=2)
    assert result.exit_code == 1
    said = "failed at 1: UnsupportedValueError: model 'fake' takes no language"
    assert f"2 of 6 {said}" in result.stderr
    (one, _) = json.loads(Path("report.json").read_text())["levels"]
    assert (one["median"]["requests"], one["median"]["failed"]) == (6, 2)
    assert one["failures"] == {"UnsupportedValueError": 2}


def test_ratios_to_a_baseline(bench: Callable[..., Result]) -> None:
    assert bench("--json", "before.json").exit_code == 0
    report = json.loads(Path("before.json").read_text())
    beside = ("--baseline", "before.json", "--min-throughput-ratio", 1, "--max-error-increase", 0)
    for factor, code in ((0.001, 0), (1000.0, 1)):
        for level, now in zip(report["levels"], (3.0, 5.0), strict=True):
            level["median"]["throughput"] = now * factor
        Path("before.json").write_text(json.dumps(report))
        result = bench(*beside)
        assert result.exit_code == code, result.output
        assert ("times the baseline's, must be 1" in result.stderr) == bool(code)


def test_a_baseline_of_other_concurrencies(bench: Callable[..., Result]) -> None:
    assert bench("--json", "before.json", concurrency="1").exit_code == 0
    result = bench("--baseline", "before.json", "--min-throughput-ratio", "1.5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: baseline before.json was not measured at a concurrency of 2\n" in result.stderr


def test_a_wrong_manifest_names_line_and_field(bench: Callable[..., Result]) -> None:
    with Path("sounds/manifest.jsonl").open("a") as file:
        file.write('\n{"path": "3.wav", "language": null}')
    result = bench()
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: manifest sounds/manifest.jsonl, line 4: no 'reference', which is a text\n"


def test_a_report_that_cannot_be_written_is_printed_all_the_same(bench: Callable[..., Result]) -> None:
    result = bench("--json", "nowhere/report.json")
    assert result.exit_code == 1
    assert "REQUESTS/S" in result.stdout
    assert "nowhere/report.json': No such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--concurrency", "0"), "Invalid value for '--concurrency': '0' is no list of numbers from 1 on"),
        (("--concurrency", "1,,4"), "Invalid value for '--concurrency'"),
        (("--concurrency", "many"), "Invalid value for '--concurrency'"),
        (("--requests", "0"), "Invalid value for '--requests'"),
        (("--manifest", "missing.jsonl"), "Invalid value for '--manifest'"),
        (("--stream",), "--stream is about a server, and needs --url"),
        (("--pid", "1"), "--pid is about a server"),
        (("--url", "http://x", "--dtype", "float32"), "--dtype is about how a model is loaded here, not a server"),
        (("--url", "http://x", "--api-key-env", "NO_SUCH"), "there is no environment variable NO_SUCH"),
        (("--min-throughput-ratio", "2"), "--baseline goes with --min-throughput-ratio or --max-error-increase"),
        (("--baseline", "sounds/manifest.jsonl"), "--baseline goes with"),
    ],
)
def test_wrong_usage(bench: Callable[..., Result], arguments: tuple[str, ...], says: str) -> None:
    result = bench(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.split())
