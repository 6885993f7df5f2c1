"""Directories in, a file for each recording out; what is finished is not done again."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from asr_core.testing.distributions import write_distribution

LEDGER = ".asr-core.jsonl"
LONG = " ".join(map(str, range(120)))
"""A text without loops that takes 18 seconds where each letter is slow."""

BEHAVING = '''
"""The fake model, which behaves as the environment says."""

import os

from attrs import evolve

from asr_core import ModelCard, hookimpl
from asr_core.errors import InvalidRequestError, UnsupportedValueError
from asr_core.services import AlignerCard
from asr_core.testing import fake
from asr_core.testing.fake import *  # noqa: F403
from asr_core.types import Checkpoint, Word


@hookimpl
def register_models(register):
    register(ModelCard("behaving"))


@hookimpl
def resolve_checkpoint(ref):
    return Checkpoint("behaving", ref, path=None) if ref == "behaving" else None


@hookimpl
def register_services(register):
    register(AlignerCard("choosy", "knows no Finnish", lambda device, dtype: Choosy()))


class Choosy:
    def align(self, clip, text, language):
        if "Finnish" in text:
            raise UnsupportedValueError("no times of words in Finnish", param="timestamp_granularities")
        return [Word(0, 100, text)]


@hookimpl
def check_request(request):
    if os.environ.get("BEHAVIOUR") == "object":
        raise InvalidRequestError("not like this")


@hookimpl
def prepare_clip(clip, request):
    return fake.prepare_clip(clip, evolve(request, options={"behaviour": os.environ.get("BEHAVIOUR", "plain")}))
'''

Job = Callable[..., Result]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def job(cli: Any) -> Job:
    """``transcribe`` arguments with the fake model, in this process."""
    return lambda *arguments: cli("transcribe", *arguments, "--model", "fake")


@pytest.fixture
def start(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """``transcribe`` arguments in a process of its own, with a model that behaves as it is told."""
    write_distribution(tmp_path / "behaving", "asr-behaving", {"behaving": BEHAVING}, {"behaving": "behaving"})
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'behaving'}:{os.environ['PYTHONPATH']}")
    monkeypatch.setenv("ASR_CORE_PLUGINS_ALLOW", "asr-behaving")
    running: list[subprocess.Popen[str]] = []

    def run(*arguments: str, behaviour: str = "plain", **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "asr_core.cli", "transcribe", *arguments, "--model", "behaving"]
        environment = os.environ | {"BEHAVIOUR": behaviour}
        options = {"stderr": subprocess.PIPE, "preexec_fn": hear_interrupts, **options}
        running.append(subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, **options))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def hear_interrupts() -> None:
    """Whoever runs the tests in the background has them, and so their processes, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(process: subprocess.Popen[str], beginning: str) -> None:
    assert process.stderr
    assert any(line.startswith(beginning) for line in process.stderr)


def results(directory: str = "out") -> dict[str, str]:
    """What was written, the ledger left out, by path below ``directory``."""
    root = Path(directory)
    files = [path for path in root.rglob("*") if path.is_file() and path.name != LEDGER]
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in files}


def summary(result: Result) -> str:
    return result.stderr.splitlines()[-1].split(" s of audio")[0].rpartition(", ")[0]


def test_a_directory_is_mirrored(job: Job, say: Any) -> None:
    for path, text in {"in/b.wav": "b", "in/a/a.wav": "aa", "in/a/deep/b.mp3": "ab", "in/.hidden/x.wav": "no"}.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        say(path, text)
    say("in/.hidden.wav", "no")
    say("in/nameless", "audio by content")
    Path("in/notes.txt").write_text("no audio")
    Path("in/a/cover.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    os.mkfifo("in/pipe.wav")
    result = job("in", "-o", "out")
    assert (result.exit_code, result.stdout) == (0, "")
    assert summary(result) == "4/4 files, 3 without audio left out"
    assert [line.split(":")[0] for line in result.stderr.splitlines()[1:-1]] == [
        "in/a/a.wav",
        "in/a/deep/b.mp3",
        "in/b.wav",
        "in/nameless",
    ]
    assert results() == {
        "b.txt": "b\n",
        "a/a.txt": "aa\n",
        "a/deep/b.txt": "ab\n",
        "nameless.txt": "audio by content\n",
    }


def test_files_and_directories_together(job: Job, say: Any) -> None:
    say("one.wav", "1")
    say("in/two.wav", "2")
    assert job("one.wav", "in", "-o", "out", "-f", "srt").exit_code == 0
    assert set(results()) == {"one.srt", "two.srt"}


def test_a_directory_without_one_for_the_results(job: Job) -> None:
    result = job(".")
    assert result.exit_code == 2
    assert "add --output DIR" in result.stderr


def test_an_empty_directory_is_no_error_and_needs_no_model(cli: Any) -> None:
    Path("in").mkdir()
    result = cli("transcribe", "in", "-o", "out", "--model", "fake", "--device", "abacus")
    assert result.exit_code == 0
    assert result.stderr.startswith("0/0 files, ")


def test_what_is_finished_is_not_done_again(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", "second")
    job("in", "-o", "out")
    Path("out/a.txt").write_text("corrected by hand")
    say("in/c.wav", "third")
    result = job("in", "-o", "out")
    assert summary(result) == "1/1 files, 2 finished earlier"
    assert results() == {"a.txt": "corrected by hand", "b.txt": "second\n", "c.txt": "third\n"}
    assert summary(job("in", "-o", "out", "--device", "cpu")) == "0/0 files, 3 finished earlier"


def test_a_changed_recording_is_done_again(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", "second")
    job("in", "-o", "out")
    status = Path("in/a.wav").stat()
    say("in/a.wav", "FIRST")
    os.utime("in/a.wav", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert summary(job("in", "-o", "out")) == "1/1 files, 1 finished earlier"
    assert results() == {"a.txt": "FIRST\n", "b.txt": "second\n"}


def test_a_recording_of_another_name_with_the_same_sound_is_done(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    job("in", "-o", "out")
    Path("in/a.wav").rename("in/b.wav")
    assert summary(job("in", "-o", "out")) == "1/1 files"
    assert set(results()) == {"a.txt", "b.txt"}


def test_a_removed_result_is_made_again(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    job("in", "-o", "out")
    Path("out/a.txt").unlink()
    assert summary(job("in", "-o", "out")) == "1/1 files"
    assert results() == {"a.txt": "first\n"}


@pytest.mark.parametrize(
    "option", [("--dtype", "float32"), ("--checkpoint", "testing/fake"), ("--chunk", "target_s=30")]
)
def test_a_changed_option_is_another_result(job: Job, say: Any, option: tuple[str, str]) -> None:
    say("in/a.wav", "first")
    job("in", "-o", "out")
    Path("out/a.txt").write_text("old")
    assert summary(job("in", "-o", "out", *option)) == "1/1 files"
    assert results() == {"a.txt": "first\n"}


def test_the_same_number_written_otherwise_is_the_same_result(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    assert summary(job("in", "-o", "out", "--chunk", "target_s=30")) == "1/1 files"
    for same in (("target_s=30.0",), ("target_s=3e1",), ("target_s=20", "--chunk", "target_s=30")):
        assert summary(job("in", "-o", "out", "--chunk", *same)) == "0/0 files, 1 finished earlier"


def test_formats_are_finished_each_for_itself(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    for format_ in ("text", "srt"):
        assert summary(job("in", "-o", "out", "-f", format_)) == "1/1 files"
    for format_ in ("text", "srt"):
        assert summary(job("in", "-o", "out", "-f", format_)) == "0/0 files, 1 finished earlier"


def test_another_version_of_the_plugin_is_another_result(start: Start, say: Any, tmp_path: Path) -> None:
    say("in/a.wav", "first")
    start("in", "-o", "out").communicate()
    (metadata,) = (tmp_path / "behaving").glob("*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("Version: 0.1", "Version: 0.2"))
    _, told = start("in", "-o", "out").communicate()
    assert told.splitlines()[-1].startswith("1/1 files, ")


def test_a_killed_run_goes_on_where_it_was(start: Start, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", LONG)
    say("in/c.wav", "third")
    process = start("in", "-o", "out", behaviour="slow")
    wait_for(process, "in/a.wav: ")
    process.kill()
    process.wait()
    assert results() == {"a.txt": "first\n"}
    Path("out/a.txt").write_text("kept")
    # What it leaves when it is killed while it writes: half a result, or half a line of the ledger.
    Path("out/.asr-core.part").write_text("half a res")
    with Path("out", LEDGER).open("a") as ledger:
        ledger.write('{"result": "b.txt", "ke')
    _, told = start("in", "-o", "out").communicate()
    assert told.splitlines()[-1].startswith("2/2 files, 1 finished earlier, ")
    assert results() == {"a.txt": "kept", "b.txt": f"{LONG}\n", "c.txt": "third\n"}
    _, told = start("in", "-o", "out").communicate()
    assert told.startswith("0/0 files, 3 finished earlier, ")


@pytest.mark.parametrize("damage", ["not json\n", "[]\n", "null\n", '{"result": 1}\n', "\0\0\0\n", "\n"])
def test_a_damaged_ledger_costs_only_what_is_damaged(job: Job, say: Any, damage: str) -> None:
    say("in/a.wav", "first")
    job("in", "-o", "out")
    ledger = Path("out", LEDGER)
    ledger.write_text(damage + ledger.read_text() + damage)
    assert summary(job("in", "-o", "out")) == "0/0 files, 1 finished earlier"


def test_interrupted_it_says_what_is_done(start: Start, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", LONG)
    say("in/c.wav", "third")
    process = start("in", "-o", "out", behaviour="slow")
    wait_for(process, "in/a.wav: ")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    (line,) = told.splitlines()
    assert line.startswith("1/3 files, 0.4 s of audio in ")
    assert results() == {"a.txt": "first\n"}


def test_two_runs_do_not_share_a_directory(start: Start, job: Job, say: Any) -> None:
    say("in/a.wav", LONG)
    first = start("in", "-o", "out", behaviour="slow")
    wait_for(first, "behaving: engine torch")
    second = job("in", "-o", "out")
    assert second.exit_code == 1
    assert second.stderr == "Error: another process writes to out: wait for it, or stop it\n"
    assert first.poll() is None
    first.kill()
    first.wait()
    assert summary(job("in", "-o", "out")) == "1/1 files"


def test_a_terminal_gets_a_bar_that_moves_within_a_file(start: Start, say: Any) -> None:
    say("in/long.wav", f"{LONG} {LONG} {LONG} {LONG}")
    leader, follower = pty.openpty()
    termios.tcsetwinsize(leader, (24, 120))
    process = start("in", "-o", "out", stderr=follower)
    os.close(follower)
    told = "".join(read_terminal(leader))
    process.wait()
    assert "file 1 of 1" in told
    assert re.search(r"\d\d:\d\d<\d\d:\d\d", told)  # time that went by, and that is left
    percents = [int(percent) for percent in re.findall(r"(\d+)%", told)]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert set(percents) - {0, 100}


def read_terminal(leader: int) -> Iterator[str]:
    with os.fdopen(leader, "rb", buffering=0) as terminal, suppress(OSError):  # which is how the other end closes
        while data := terminal.read(4096):
            yield data.decode(errors="replace")


def test_failures_stand_at_the_end_and_are_tried_again(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/z.wav", "last")
    Path("in/b.wav").write_text("<html>this was no recording</html>")
    Path("in/c.mp3").touch()
    Path("in/gone.wav").symlink_to("nowhere")
    Path("in/self.wav").symlink_to("self.wav")
    for counts in ("2/6 files", "0/4 files, 2 finished earlier"):
        result = job("in", "-o", "out")
        assert result.exit_code == 1
        assert summary(result) == counts
        assert results() == {"a.txt": "first\n", "z.txt": "last\n"}
        gone, itself, html, empty = result.stderr.splitlines()[-5:-1]
        assert gone == "in/gone.wav: No such file or directory"
        assert itself == "in/self.wav: Too many levels of symbolic links"
        assert html.startswith("in/b.wav: Invalid file format. ")
        assert empty == "in/c.mp3: The audio file is empty (0 bytes)."
    say("in/b.wav", "mended")
    assert summary(job("in", "-o", "out")) == "1/4 files, 2 finished earlier"


def test_what_is_refused_because_of_one_file_is_that_files(start: Start, say: Any) -> None:
    say("in/a.wav", "English")
    say("in/b.wav", "Finnish")
    say("in/c.wav", "English too")
    process = start("in", "-o", "out", "-f", "json", "--aligner", "choosy")
    _, told = process.communicate()
    assert process.returncode == 1
    failure, last = told.splitlines()[-2:]
    assert failure == "in/b.wav: no times of words in Finnish"
    assert last.startswith("2/3 files, ")
    assert set(results()) == {"a.json", "c.json"}


def test_what_the_model_refuses_for_every_file_is_said_once(start: Start, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", "second")
    process = start("in", "-o", "out", behaviour="object")
    _, told = process.communicate()
    assert (process.returncode, told) == (1, "error: not like this\n")
    assert results() == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", "second")
    say("in/c/c.wav", "third")
    Path("in/a.wav").chmod(0)
    Path("in/c").chmod(0)
    result = job("in", "-o", "out")
    Path("in/c").chmod(0o700)
    assert result.stderr.splitlines()[-3:-1] == ["in/c: Permission denied", "in/a.wav: Permission denied"]
    assert results() == {"b.txt": "second\n"}


def test_links_that_lead_back_are_followed_once(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    say("elsewhere/b.wav", "second")
    Path("in/loop").symlink_to(".")
    Path("in/up").symlink_to("..")
    Path("elsewhere/back").symlink_to("../in")
    job("in", "-o", "out")
    assert results() == {"a.txt": "first\n", "up/elsewhere/b.txt": "second\n"}


@pytest.mark.parametrize("output", ["in/out", "in"])
def test_results_may_lie_among_the_recordings(job: Job, say: Any, output: str) -> None:
    say("in/a.wav", "first")
    say("in/sub/b.wav", "second")
    job("in", "-o", output)
    assert Path(output, "a.txt").read_text() == "first\n"
    assert Path(output, "sub", "b.txt").read_text() == "second\n"
    assert summary(job("in", "-o", output)).startswith("0/0 files, 2 finished earlier")


def test_recordings_that_would_have_one_result(job: Job, say: Any) -> None:
    say("in/a.wav", "one")
    say("in/a.mp3", "two")
    result = job("in", "-o", "out")
    assert result.exit_code == 2
    assert "in/a.mp3 and in/a.wav would be written to out/a.txt" in result.stderr
    assert not Path("out").exists()


def test_no_recording_is_overwritten(job: Job, say: Any) -> None:
    say("in/a.txt", "audio by content")
    before = Path("in/a.txt").read_bytes()
    result = job("in", "-o", "in")
    assert result.exit_code == 2
    assert "in/a.txt is to be transcribed" in result.stderr
    assert Path("in/a.txt").read_bytes() == before


def test_a_result_whose_place_is_taken_fails_alone(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", "second")
    Path("out/a.txt").mkdir(parents=True)
    result = job("in", "-o", "out")
    assert result.exit_code == 1
    assert "in/a.wav: Is a directory" in result.stderr.splitlines()
    assert results()["b.txt"] == "second\n"


NAMES = {
    "grüße 你好.wav": "grüße 你好.wav",
    "two\nlines.wav": r"two\nlines.wav",
    "\x1b[31m.wav": r"\x1b[31m.wav",
    os.fsdecode(b"\xff.wav"): r"\udcff.wav",
}
"""Names of files, and how they are told."""


@pytest.mark.parametrize("format_", ["text", "json"])
def test_names_of_every_kind(job: Job, say: Any, format_: str) -> None:
    for name in NAMES:
        say(f"in/{name}", "x")
    result = job("in", "-o", "out", "-f", format_)
    assert result.exit_code == 0
    told = [line.rpartition(": ")[0] for line in result.stderr.splitlines()[1:-1]]
    assert sorted(told) == sorted(f"in/{name}" for name in NAMES.values())
    if format_ == "json":
        assert {json.loads(line)["file"] for line in results().values()} == {f"in/{name}" for name in NAMES}
    assert summary(job("in", "-o", "out", "-f", format_)) == "0/0 files, 4 finished earlier"


def test_speech_that_was_lost_is_named(job: Job, say: Any) -> None:
    say("in/a.wav", "first")
    say("in/b.wav", "second")
    whole = Path("in/a.wav").read_bytes()
    Path("in/a.wav").write_bytes(whole[:-1000])
    result = job("in", "-o", "out", "-f", "json")
    assert result.exit_code == 0
    lost, last = result.stderr.splitlines()[-2:]
    assert lost.startswith("in/a.wav: lost 00:00:00.")
    assert "1 with losses" in last
    (coverage,) = [part for part in json.loads(results()["a.json"])["x_asr"]["coverage"] if part["state"] == "lost"]
    assert lost.endswith(coverage["note"])


def test_what_guards_did_is_counted(start: Start, say: Any) -> None:
    say("in/a.wav", LONG)
    _, told = start("in", "-o", "out", behaviour="loop").communicate()
    assert re.search(r", guards: .*loop=\d", told.splitlines()[-1])
