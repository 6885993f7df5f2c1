"""What a model's plugin says does not depend on who else is installed, nor on who was found first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from asr_core.testing.distributions import write_distribution

INSTALLED = {
    point.dist.name: (point.name, point.value)
    for point in entry_points(group="asr_core")
    if point.dist is not None and point.dist.name != "asr-core"
}

ASK = """
import json
from attrs import asdict
from asr_core.plugins import Plugins
from asr_core.types import Checkpoint, CheckpointModel
plugins = Plugins.discover(strict=True)
print(json.dumps([record.distribution for record in plugins.records]))
answers = {}
for card in plugins.models():
    published = plugins.published(card)
    answers[card.name] = [plugins.owner(card.name).distribution, repr(card), repr(published)]
print(json.dumps(answers))
"""


@cache
def ask(allowed: tuple[str, ...], order: tuple[str, ...] = (), path: Path | None = None) -> tuple[list[str], Any]:
    """The plugins in the order they are listed, and what each model's plugin says."""
    sites = [str(path / name) for name in order] if path else []
    environment = {
        **os.environ,
        "ASR_CORE_PLUGINS_ALLOW": ",".join(allowed),
        "PYTHONPATH": os.pathsep.join(sites),
        "PYTHONHASHSEED": "0",  # sets print in one order
    }
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, answers = map(json.loads, done.stdout.splitlines())
    return found, answers


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory per plugin with what an installation writes; their order on the path is that of installation."""
    path = tmp_path_factory.mktemp("sites")
    for name, (entry, target) in INSTALLED.items():
        write_distribution(path / name, name, {}, {entry: target})
    return path


def test_all_plugins_of_this_repository_are_installed_together() -> None:
    here = {path.parent.name for path in (Path(__file__).parents[2] / "plugins").glob("*/pyproject.toml")}
    assert here <= INSTALLED.keys()
    _, answers = ask(tuple(sorted(here)))
    assert {distribution for distribution, *_ in answers.values()} == here


@pytest.mark.parametrize("name", sorted(INSTALLED))
def test_a_plugin_alone_says_the_same_as_in_company(name: str) -> None:
    _, together = ask(tuple(sorted(INSTALLED)))
    _, alone = ask((name,))
    assert alone
    assert alone == {model: said for model, said in together.items() if said[0] == name}


@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_installation_changes_nothing(sites: Path, reverse: bool) -> None:
    names = tuple(sorted(INSTALLED, reverse=reverse))
    assert ask(names, names, sites) == ask(tuple(sorted(INSTALLED)))
