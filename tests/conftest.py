"""Fixtures every test may use: the fake model as an installed distribution, and the clips with their words."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from asr_core.api import Transcriber, load
from asr_core.testing.distributions import write_distribution

LIBRIVOX = Path(__file__).parent / "data" / "librivox"


@pytest.fixture(scope="module")
def fake_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the fake model for this module's tests and the processes they start."""
    directory = tmp_path_factory.mktemp("fake")
    write_distribution(directory, "asr-fake", {}, {"fake": "asr_core.testing.fake"})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]).rstrip(":"))
        importlib.invalidate_caches()
        yield directory


@pytest.fixture(scope="module")
def fake(fake_model: Path) -> Iterator[Transcriber]:
    """The fake model, opened."""
    with load("fake") as transcriber:
        yield transcriber


@pytest.fixture(scope="session")
def librivox() -> dict[Path, str]:
    """Clips of read speech and what is said in them."""
    lines = (LIBRIVOX / "transcripts.txt").read_text().splitlines()
    return {LIBRIVOX / f"{line.split()[0]}.wav": " ".join(line.split()[1:]) for line in lines}
