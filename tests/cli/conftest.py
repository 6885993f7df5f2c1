"""The command line in this process, with the fake model and a broken plugin installed."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from asr_core.cli import main
from asr_core.testing import tones
from asr_core.testing.distributions import write_distribution


@pytest.fixture
def cli(fake_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run a command in an empty directory; other plugins that happen to be installed are out of sight."""
    monkeypatch.setenv("ASR_CORE_PLUGINS_ALLOW", "asr-fake,asr-broken")
    write_distribution(tmp_path / "broken", "asr-broken", {"asr_broken": "import nowhere"}, {"broken": "asr_broken"})
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)

    def run(*arguments: Any, broken: bool = False) -> Result:
        with pytest.MonkeyPatch.context() as patch:
            if broken:
                patch.syspath_prepend(str(tmp_path / "broken"))
            else:
                patch.setenv("ASR_CORE_PLUGINS_ALLOW", "asr-fake")
            return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="asr-core")

    return run


@pytest.fixture
def say(cli: Callable[..., Result]) -> Callable[[str, str], None]:
    """Write a text in tones to a file, relative to the working directory."""

    def write(path: str, text: str) -> None:
        file = io.BytesIO()
        with wave.open(file, "wb") as output:
            output.setnchannels(1)
            output.setsampwidth(2)
            output.setframerate(tones.RATE)
            output.writeframes((tones.speak(text) * 32767).astype(np.int16).tobytes())
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(file.getvalue())

    return write
