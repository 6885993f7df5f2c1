"""Every command and every program in the documents, run as a reader would run them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
WORDS = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them."
)


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


def shell(command: str, port: int = 8000) -> str:
    """Standard output of a document's command, in the repository's root, this environment's programs first."""
    command = f'export PATH="{Path(sys.executable).parent}:$PATH"; {command.replace(":8000", f":{port}")}'
    result = subprocess.run(["bash", "-euc", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The README's server, on a port that is free."""
    (serve,) = [block.strip() for block in blocks(README, "bash") if " serve " in block]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arguments = [*serve.split()[1:], "--port", str(port)]
    command = [str(Path(sys.executable).with_name("asr-core")), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any("serving on" in line for line in process.stdout)
        yield port
        process.terminate()
        process.stdout.read()
    assert process.returncode == 0


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
