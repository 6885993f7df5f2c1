"""Starting is cheap: nothing heavy is imported before a model is opened."""

import os
import subprocess
import sys
from pathlib import Path

import asr_core
from asr_core.testing.distributions import write_distribution

HEAVY = ("torch", "transformers", "librosa", "av", "starlette")
SOURCE = Path(asr_core.__file__).parents[1]
PLUGIN = """
    from asr_core import ModelCard, hookimpl

    @hookimpl
    def register_models(register):
        register(ModelCard(name="light"))
"""


def run(code: str, *path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, *path)))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert run(f"import sys, asr_core; print([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_discovering_and_registering_load_nothing_heavy(tmp_path: Path) -> None:
    write_distribution(tmp_path, "asr-light", {"asr_light": PLUGIN}, {"light": "asr_light"})
    code = (
        "import sys; from asr_core.plugins import Plugins;"
        "plugins = Plugins.discover(allow=['asr-light'], strict=True);"
        "print([card.name for card in plugins.models()], plugins.engine('torch').name,"
        f"[name for name in {HEAVY} if name in sys.modules])"
    )
    assert run(code, tmp_path) == "['light'] torch []"


def test_the_contract_alone_does_not_load_the_engine(tmp_path: Path) -> None:
    code = "import sys, asr_core; print('asr_core.engines.embedded' in sys.modules, 'asr_core.api' in sys.modules)"
    assert run(code, tmp_path) == "False False"
