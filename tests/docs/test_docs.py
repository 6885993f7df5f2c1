"""Every command and every program in the documents, run as a reader would run them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import pytest

from asr_core.cli.serve import serve

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
WORDS = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them."
)


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


def shell(command: str, port: int = 8000, directory: Path = ROOT) -> str:
    """Standard output of a document's command, in the repository's root, this environment's programs first."""
    command = f'export PATH="{Path(sys.executable).parent}:$PATH"; {command.replace(":8000", f":{port}")}'
    result = subprocess.run(["bash", "-euc", command], cwd=directory, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@contextmanager
def serving(command: str, port: int, directory: Path = ROOT) -> Iterator[None]:
    """A document's server, on ``port``."""
    arguments = [str(Path(sys.executable).with_name("asr-core")), *command.split()[1:], "--port", str(port)]
    with subprocess.Popen(arguments, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any("serving on" in line for line in process.stdout)
        try:
            yield
        finally:
            process.terminate()
            process.stdout.read()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The README's server, on a port that is free."""
    (command,) = [block.strip() for block in blocks(README, "bash") if " serve " in block]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with serving(command, port):
        yield port


@pytest.mark.parametrize(
    "document", [README, ROOT / "plugins" / "asr-whisper" / "README.md"], ids=lambda path: path.parent.name
)
def test_transcribe_commands_print_the_words(document: Path) -> None:
    commands = [line for block in blocks(document, "bash") for line in block.splitlines() if " transcribe " in line]
    assert commands
    for command in commands:
        assert WORDS in shell(command)


def test_the_curl_command_is_answered(port: int) -> None:
    (curl,) = [block for block in blocks(README, "bash") if block.startswith("curl")]
    assert WORDS in shell(curl, port)


def test_programs_print_the_words(port: int) -> None:
    programs = blocks(README, "python")
    assert len(programs) == 2
    for program in programs:
        program = program.replace(":8000", f":{port}")
        result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.stdout.strip() == WORDS, result.stderr


def test_the_documented_plugin_is_the_tested_one() -> None:
    """tests/contract/test_strangers.py runs it."""
    (program,) = blocks(ROOT / "docs" / "write-a-plugin.md", "python")
    assert program == (ROOT / "tests" / "contract" / "plugins" / "ctc.py").read_text()


@pytest.mark.parametrize("document", [README, *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))], ids=str)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


PAGES = [ROOT / "docs" / name for name in ("transcribe.md", "serve.md", "operate.md", "bench.md", "limits.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_with_its_commands(page: Path, tmp_path: Path) -> None:
    """Its commands in order, against the server it starts, if any; each prints the lines that stand below it."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    asked = 0
    with ExitStack() as stack:
        for command, shown in re.findall(
            r"^```bash\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", page.read_text(), re.DOTALL | re.MULTILINE
        ):
            if " serve " in command:
                stack.enter_context(serving(command, port, tmp_path))
                continue
            printed = shell(command, port, tmp_path)
            asked += bool(shown)
            for line in shown.splitlines():
                assert line in printed
    assert asked


def test_every_limit_is_documented() -> None:
    """With its default, as `asr-core serve --help` tells it."""
    documented = dict(re.findall(r"^\| `(--[a-z-]+)` \| ([0-9.]+) \|", PAGES[-1].read_text(), re.MULTILINE))
    options = {option.opts[0]: str(option.default) for option in serve.params if isinstance(option, click.Option)}
    limits = {flag for flag in options if re.match("--(max|min)-|--[a-z]+-timeout", flag)}
    assert documented == {flag: options[flag] for flag in limits}
