"""Discovery and routing, through distributions on disk: what an operator sees with good, bad and rival plugins."""

import importlib
import importlib.metadata
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asr_core
from asr_core.errors import CheckpointError, ModelNotFoundError, PluginConflictError, PluginError
from asr_core.plugins import PluginRecord, Plugins
from asr_core.testing.distributions import write_distribution
from asr_core.types import CheckpointModel, ClipContext, FrontendModel, TranscriptionRequest, Waveform

Install = Callable[..., None]
ORDERS = [("asr-alpha", "asr-beta"), ("asr-beta", "asr-alpha")]

HEAD = """
import pathlib
from asr_core import AlignerCard, EngineCard, ModelCard, hookimpl
from asr_core.errors import CheckpointError
from asr_core.services import DetectorCard
from asr_core.types import *
"""
IMPORT_ERROR = "import nowhere_to_be_found"


def models(*cards: str) -> str:
    """A plugin that registers ``cards``, each the arguments of a ModelCard, and resolves what it registered."""
    return f"""{HEAD}
CARDS = [{", ".join(f"ModelCard({card})" for card in cards)}]

@hookimpl
def register_models(register):
    for card in CARDS:
        register(card)

@hookimpl
def resolve_checkpoint(ref):
    for card in CARDS:
        if ref in (card.name, *card.aliases, *card.checkpoints):
            return Checkpoint(card.name, ref, None)
"""


def engine(name: str) -> str:
    return f"""{HEAD}
@hookimpl
def register_engines(register):
    register(EngineCard("{name}", "", frozenset(), frozenset(), print))
"""


def aligner(name: str) -> str:
    return f"""{HEAD}
@hookimpl
def register_services(register):
    register(AlignerCard("{name}", "", print))
"""


def detector(name: str) -> str:
    return f"""{HEAD}
@hookimpl
def register_services(register):
    register(DetectorCard("{name}", "", print))
"""


@pytest.fixture(autouse=True)
def nothing_else_installed() -> Iterator[None]:
    """Plugins that this environment happens to have are out of sight."""
    path = sys.path[:]
    sys.path[:] = [entry for entry in path if not has_plugins(entry)]
    yield
    sys.path[:] = path


@cache
def has_plugins(entry: str) -> bool:
    return any(
        distribution.entry_points.select(group="asr_core")
        for distribution in importlib.metadata.distributions(path=[entry])
    )


@pytest.fixture(autouse=True)
def no_settings(nothing_else_installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ASR_CORE_PLUGINS_ALLOW", "ASR_CORE_PLUGINS_BLOCK", "ASR_CORE_STRICT"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution of one module in front of ``sys.path``; what it loads is unloaded again."""

    def install(name: str, source: str, entry: str | None = None, version: str = "0.1") -> None:
        module = name.replace("-", "_")
        write_distribution(tmp_path / name, name, {module: source}, {entry or name: module}, version)
        monkeypatch.syspath_prepend(tmp_path / name)

    yield install
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    importlib.invalidate_caches()


def record(plugins: Plugins, distribution: str) -> PluginRecord:
    (found,) = (record for record in plugins.records if record.distribution == distribution)
    return found


# What is installed


def test_a_plugin_is_listed_with_what_it_brings(install: Install) -> None:
    install("asr-alpha", models("'some', aliases=('s',), checkpoints=('org/some',)"), entry="alpha", version="1.2")
    plugins = Plugins.discover()
    assert record(plugins, "asr-alpha") == PluginRecord(
        name="alpha",
        distribution="asr-alpha",
        version="1.2",
        hooks=("register_models", "resolve_checkpoint"),
        models=("some",),
        engines=(),
        aligners=(),
        detectors=(),
        error=None,
        traceback=None,
        blocked=None,
        conflicts=(),
        warnings=(),
    )
    assert plugins.owner("s") == plugins.owner("org/some") == record(plugins, "asr-alpha")


def test_models_come_by_name_whatever_the_order_of_registration(install: Install) -> None:
    install("asr-alpha", models("'c'", "'a'"))
    install("asr-beta", models("'b'"))
    assert [card.name for card in Plugins.discover().models()] == ["a", "b", "c"]


def test_the_cores_own_engine_and_detectors_take_the_same_way_in() -> None:
    plugins = Plugins.discover()
    engine, vad = (record for record in plugins.records if record.distribution == "asr-core")
    assert (engine.name, engine.hooks, engine.engines) == ("embedded", ("register_engines",), ("torch",))
    assert (vad.name, vad.hooks, vad.detectors) == ("vad", ("register_services",), ("energy", "silero"))
    assert engine.error is vad.error is None
    assert plugins.engine("torch").name == "torch"
    assert plugins.detector("energy").name == "energy"


def test_an_engine_comes_from_a_plugin_too(install: Install) -> None:
    install("asr-remote", engine("remote"))
    plugins = Plugins.discover()
    assert plugins.engine("remote").name == "remote"
    with pytest.raises(PluginError, match="no installed plugin brings the engine 'remot'; there are: remote, torch"):
        plugins.engine("remot")


def test_an_aligner_comes_from_a_plugin_that_needs_no_model(install: Install) -> None:
    install("asr-times", aligner("exact"))
    plugins = Plugins.discover()
    assert (record(plugins, "asr-times").aligners, record(plugins, "asr-times").warnings) == (("exact",), ())
    assert plugins.aligner("exact").name == "exact"
    with pytest.raises(PluginError, match="no installed plugin brings the aligner 'exat'; there are: exact"):
        plugins.aligner("exat")
    with pytest.raises(PluginError, match="no installed plugin brings the aligner 'exact'; there are: none"):
        Plugins.discover(block=["asr-times"]).aligner("exact")


def test_a_detector_comes_from_a_plugin_too_which_may_bring_an_aligner_of_that_name(install: Install) -> None:
    install("asr-ear", detector("ear") + '    register(AlignerCard("ear", "", print))')
    plugins = Plugins.discover()
    assert (record(plugins, "asr-ear").detectors, record(plugins, "asr-ear").aligners) == (("ear",), ("ear",))
    assert (plugins.detector("ear").name, type(plugins.aligner("ear")).__name__) == ("ear", "AlignerCard")
    with pytest.raises(PluginError, match="brings the detector 'eer'; there are: ear, energy, silero"):
        plugins.detector("eer")


def test_a_module_inside_a_package_and_an_object_are_plugins(tmp_path: Path, install: Install) -> None:
    install("asr-beta", models("'plain'"))
    source = f"""{HEAD}
class Some:
    @hookimpl
    def register_models(self, register):
        register(ModelCard("x"))

some = Some()
"""
    write_distribution(
        tmp_path / "asr-beta",
        "asr-gamma",
        {"asr_gamma.deep.plugin": models("'deep'"), "asr_gamma.object": source},
        {"deep": "asr_gamma.deep.plugin", "object": "asr_gamma.object:some"},
    )
    plugins = Plugins.discover()
    assert [card.name for card in plugins.models()] == ["deep", "plain", "x"]
    assert plugins.resolve("deep")[2].owner == "asr-gamma:deep"


# Broken plugins


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (IMPORT_ERROR, "importing it raised ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("raise SystemExit('needs a licence')", "importing it raised SystemExit: needs a licence"),
        ("def broken(:", "importing it raised SyntaxError: invalid syntax"),
        ("1 / 0", "importing it raised ZeroDivisionError: division by zero"),
    ],
)
def test_one_that_fails_to_import_leaves_the_others_working_and_is_explained(
    install: Install, source: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    install("asr-alpha", source)
    install("asr-beta", models("'good'"))
    plugins = Plugins.discover()
    assert plugins.resolve("good")[0].model == "good"
    broken = record(plugins, "asr-alpha")
    assert told in str(broken.error)
    assert told.split("raised ")[1].split(":")[0] in str(broken.traceback)
    assert (broken.hooks, broken.models) == ((), ())
    assert f"asr-alpha: {told}" in caplog.text


FAULTS = [
    ("def nativ_limit(model): ...", "there is no hook nativ_limit (did you mean native_limit?)"),
    ("def brew_coffee(model): ...", "there is no hook brew_coffee"),
    ("def native_limit(modle): ...", "native_limit has no argument modle, only model (did you mean model?)"),
    ("def chunk_policy(model, target=30): ...", "chunk_policy has no argument target, only model"),
]


@pytest.mark.parametrize(("function", "told"), FAULTS)
def test_a_hook_the_contract_does_not_know_refuses_the_plugin(install: Install, function: str, told: str) -> None:
    install("asr-alpha", models("'bad'") + f"\n@hookimpl\n{function}")
    install("asr-beta", models("'good'"))
    plugins = Plugins.discover()
    assert record(plugins, "asr-alpha").error == told
    assert [card.name for card in plugins.models()] == ["good"]
    assert plugins.resolve("good")[1].name == "good"


def test_all_faults_are_told_at_once(install: Install) -> None:
    install("asr-alpha", "\n".join([models("'bad'"), *(f"@hookimpl\n{function}" for function, _ in FAULTS[1:])]))
    assert record(Plugins.discover(), "asr-alpha").error == "; ".join(
        [FAULTS[3][1], FAULTS[2][1], "there is no hook brew_coffee"]
    )


def test_an_unknown_hook_marked_optional_is_allowed(install: Install) -> None:
    install("asr-alpha", models("'some'") + "\n@hookimpl(optionalhook=True)\ndef of_the_future(model): ...")
    plugins = Plugins.discover()
    assert record(plugins, "asr-alpha").error is None
    assert "of_the_future" not in record(plugins, "asr-alpha").hooks


@pytest.mark.parametrize(("api", "upgrade"), [(3, "asr-core"), (-1, "asr-alpha")])
def test_another_hook_api_says_what_to_upgrade(install: Install, api: int, upgrade: str) -> None:
    install("asr-alpha", models(f"'bad', hook_api={api}"))
    told = f"built for hook API {api}, this asr-core speaks 0: upgrade {upgrade}"
    plugins = Plugins.discover()
    assert record(plugins, "asr-alpha").error == told
    with pytest.raises(ModelNotFoundError, match=f"asr-alpha failed to load: {told}"):
        plugins.resolve("bad")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (models("'a'", "'a'"), "it registers the model 'a' twice"),
        (models("'a'", "'b', aliases=('a',)"), "it registers the model 'a' twice"),
        (engine("e") + '    register(EngineCard("e", "", frozenset(), frozenset(), print))', "the engine 'e' twice"),
        (aligner("a") + '    register(AlignerCard("a", "", print))', "it registers the aligner 'a' twice"),
        (detector("d") + '    register(DetectorCard("d", "", print))', "it registers the detector 'd' twice"),
        (aligner("a") + "    register(print)", "registered <built-in function print>, which is no AlignerCard or Det"),
        (models("'a'").replace("register(card)", "register('a')"), "registered 'a', which is no ModelCard"),
        (models("'a'").replace("register(card)", "1 / 0"), "register_models raised ZeroDivisionError: division by"),
        (models("'a'").replace("register(card)", "exit(3)"), "register_models raised SystemExit: 3"),
        (models("'a'") + "\n@hookimpl(specname='register_models')\ndef more(register): ...", "is implemented twice"),
        ("x = 1", "it has no hooks: mark its functions with @asr_core.hookimpl"),
        (models("'a'") + "\n@hookimpl(wrapper=True)\ndef native_limit(model): ...", "function is not a generator"),
    ],
)
def test_what_a_plugin_does_wrong_by_itself_is_told(install: Install, source: str, told: str) -> None:
    install("asr-alpha", source)
    install("asr-beta", models("'good'"))
    plugins = Plugins.discover()
    assert told in str(record(plugins, "asr-alpha").error)
    assert [card.name for card in plugins.models()] == ["good"]


def test_one_object_under_two_entry_points_is_used_once(install: Install, tmp_path: Path) -> None:
    install("asr-alpha", models("'some'"))
    write_distribution(tmp_path / "asr-alpha", "asr-copy", {}, {"copy": "asr_alpha"})
    plugins = Plugins.discover()
    assert record(plugins, "asr-copy").error == "it is the very object that asr-alpha is; only that one is used"
    assert plugins.resolve("some")[2].owner == "asr-alpha"


def test_an_object_that_cannot_be_routed_is_refused_alone(install: Install, tmp_path: Path) -> None:
    source = f"{HEAD}\nclass List(list):\n    @hookimpl\n    def register_models(self, register): ...\nplugin = List()"
    install("asr-beta", models("'good'"))
    write_distribution(tmp_path / "asr-beta", "asr-alpha", {"asr_alpha": source}, {"alpha": "asr_alpha:plugin"})
    plugins = Plugins.discover()
    assert "unhashable type: 'List'" in str(record(plugins, "asr-alpha").error)
    assert plugins.resolve("good")[1].name == "good"


def test_routed_hooks_of_a_plugin_without_models_are_said_to_be_never_called(install: Install) -> None:
    install("asr-alpha", f"{HEAD}\n@hookimpl\ndef native_limit(model): ...\n@hookimpl\ndef chunk_policy(model): ...")
    observer = record(Plugins.discover(), "asr-alpha")
    assert observer.warnings == ("it registers no model, so these hooks are never called: chunk_policy, native_limit",)
    assert observer.error is None


def test_a_postprocessor_without_models_is_welcome(install: Install) -> None:
    install("asr-alpha", f"{HEAD}\n@hookimpl\ndef postprocess_transcript(transcript): ...")
    observer = record(Plugins.discover(), "asr-alpha")
    assert (observer.warnings, observer.error) == ((), None)


# Two that claim the same


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rivals", ORDERS)
@pytest.mark.parametrize(
    ("first", "second", "contested", "lost"),
    [
        ("'some'", "'some'", "some", {"some"}),
        ("'some'", "'other', aliases=('some',)", "some", {"some"}),
        ("'some', aliases=('s',)", "'other', aliases=('s',)", "s", set()),
        ("'some', checkpoints=('org/x',)", "'other', checkpoints=('org/x',)", "org/x", set()),
    ],
    ids=["name", "alias of name", "alias", "checkpoint"],
)
def test_a_name_claimed_twice_is_nobodys_in_any_install_order(
    install: Install,
    order: tuple[str, str],
    rivals: tuple[str, str],
    first: str,
    second: str,
    contested: str,
    lost: set[str],
) -> None:
    sources = {rivals[0]: models(first, "'mine'"), rivals[1]: models(second, "'yours'")}
    for name in order:
        install(name, sources[name])
    plugins = Plugins.discover()
    for ask in (plugins.resolve, plugins.owner):
        with pytest.raises(PluginConflictError) as caught:
            ask(contested)
        assert f"'{contested}' is claimed by asr-alpha and asr-beta" in str(caught.value)
        assert "ASR_CORE_PLUGINS_BLOCK=asr-alpha or ASR_CORE_PLUGINS_BLOCK=asr-beta" in str(caught.value)
    for name in order:
        assert record(plugins, name).conflicts == (str(caught.value),)
    registered = {name for one in plugins.records for name in one.models}
    assert {card.name for card in plugins.models()} == registered - lost
    for name in sorted(registered - lost):
        assert plugins.resolve(name)[0].model == name


def test_an_alias_of_a_card_whose_name_is_contested_leads_to_the_same_explanation(install: Install) -> None:
    install("asr-alpha", models("'some', aliases=('mine',)"))
    install("asr-beta", models("'some'"))
    with pytest.raises(PluginConflictError, match="the model 'some' is claimed by asr-alpha and asr-beta"):
        Plugins.discover().resolve("mine")


@pytest.mark.parametrize("order", ORDERS)
def test_blocking_one_of_two_rivals_settles_it(install: Install, order: tuple[str, str]) -> None:
    for name in order:
        install(name, models("'some'"))
    assert Plugins.discover(block=["asr-alpha"]).resolve("some")[2].owner == "asr-beta"
    importlib.invalidate_caches()
    assert Plugins.discover(block=["asr-beta"]).resolve("some")[2].owner == "asr-alpha"


@pytest.mark.parametrize("order", ORDERS)
def test_an_engine_claimed_twice_is_nobodys(install: Install, order: tuple[str, str]) -> None:
    for name in order:
        install(name, engine("fast"))
    plugins = Plugins.discover()
    with pytest.raises(PluginConflictError, match="the engine 'fast' is claimed by asr-alpha and asr-beta"):
        plugins.engine("fast")
    assert all("'fast'" in record(plugins, name).conflicts[0] for name in order)
    assert plugins.engine("torch").name == "torch"


@pytest.mark.parametrize("order", ORDERS)
def test_an_aligner_claimed_twice_is_nobodys(install: Install, order: tuple[str, str]) -> None:
    for name in order:
        install(name, aligner("exact"))
    plugins = Plugins.discover()
    with pytest.raises(PluginConflictError, match="the aligner 'exact' is claimed by asr-alpha and asr-beta"):
        plugins.aligner("exact")
    assert all("'exact'" in record(plugins, name).conflicts[0] for name in order)
    importlib.invalidate_caches()
    assert Plugins.discover(block=["asr-beta"]).aligner("exact").name == "exact"


@pytest.mark.parametrize("order", ORDERS)
def test_a_detector_claimed_twice_is_nobodys_and_the_built_in_ones_remain(
    install: Install, order: tuple[str, str]
) -> None:
    for name in order:
        install(name, detector("ear"))
    plugins = Plugins.discover()
    with pytest.raises(PluginConflictError, match="the detector 'ear' is claimed by asr-alpha and asr-beta"):
        plugins.detector("ear")
    assert plugins.detector("energy").name == "energy"


def test_nobody_replaces_a_built_in_detector_by_being_installed(install: Install) -> None:
    install("asr-alpha", detector("energy"))
    told = "'energy' is claimed by asr-core:vad and asr-alpha, .*: ASR_CORE_PLUGINS_BLOCK=asr-core:vad or "
    with pytest.raises(PluginConflictError, match=told):
        Plugins.discover().detector("energy")
    assert Plugins.discover(block=["asr-core:vad"]).detector("energy").create is print


def test_a_refused_plugin_contests_nothing(install: Install) -> None:
    install("asr-alpha", models("'some', hook_api=9"))
    install("asr-beta", models("'some'"))
    assert Plugins.discover().resolve("some")[2].owner == "asr-beta"


def test_two_cards_of_one_plugin_may_share_a_checkpoint(install: Install) -> None:
    install("asr-alpha", models("'one', checkpoints=('org/x',)", "'two', checkpoints=('org/x',)"))
    plugins = Plugins.discover(block=["embedded"], strict=True)
    assert plugins.resolve("org/x")[1].name == "one"


# Directories and other references


def recognising(name: str, marker: str, answer: str = "") -> str:
    """A plugin that knows its own directories by a file called ``marker``."""
    return f"""{models(f"'{name}'")}
def mine(ref):
    if (pathlib.Path(ref) / "{marker}").exists():
        {answer or f"return Checkpoint('{name}', ref, pathlib.Path(ref))"}

@hookimpl(specname="resolve_checkpoint", wrapper=True)
def directories(ref):
    return (yield) or list(filter(None, [mine(ref)]))
"""


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "alpha.json").touch()
    return str(tmp_path / "weights")


def test_a_directory_goes_to_the_plugin_that_recognises_it(install: Install, directory: str) -> None:
    install("asr-alpha", recognising("alpha", "alpha.json"))
    install("asr-beta", recognising("beta", "beta.json"))
    checkpoint, card, hooks = Plugins.discover().resolve(directory)
    assert (checkpoint.path, card.name, hooks.owner) == (Path(directory), "alpha", "asr-alpha")


def test_a_named_model_takes_another_checkpoint_of_its_plugin(install: Install, directory: str) -> None:
    install("asr-alpha", recognising("one", "alpha.json", "return Checkpoint('two', ref, pathlib.Path(ref))"))
    install("asr-beta", recognising("beta", "alpha.json"))
    checkpoint, card, hooks = Plugins.discover().resolve("one", directory)
    assert (checkpoint.path, checkpoint.model, card.name, hooks.owner) == (Path(directory), "one", "one", "asr-alpha")
    with pytest.raises(CheckpointError, match="'elsewhere' is no checkpoint of 'one' that asr-alpha could read"):
        Plugins.discover().resolve("one", "elsewhere")
    with pytest.raises(ModelNotFoundError, match="knows the model 'won' \\(did you mean one"):
        Plugins.discover().resolve("won", directory)


def test_what_a_card_can_do_is_told_without_a_checkpoint(install: Install) -> None:
    install("asr-alpha", models("'one', config=7", "'two'") + POLICIES.format(n=7))
    plugins = Plugins.discover()
    one, two = plugins.models()
    published = plugins.published(one)
    assert published is not None
    assert (published[0].languages, published[1].seconds) == (("x7",), 7.0)
    assert plugins.published(two) is None


@pytest.mark.parametrize("order", ORDERS)
def test_a_directory_claimed_by_two_is_refused_naming_both(
    install: Install, directory: str, order: tuple[str, str]
) -> None:
    for name in order:
        install(name, recognising(name, "alpha.json"))
    with pytest.raises(PluginConflictError, match=r"weights' is claimed by asr-alpha and asr-beta, .*BLOCK=asr-beta"):
        Plugins.discover().resolve(directory)


@pytest.mark.parametrize("order", ORDERS)
def test_a_plugin_that_chokes_on_a_strangers_directory_does_not_keep_the_owner_from_answering(
    install: Install, directory: str, order: tuple[str, str]
) -> None:
    sources = [recognising("alpha", "alpha.json"), recognising("beta", "alpha.json", "raise KeyError('model_type')")]
    for name, source in zip(order, sources, strict=True):
        install(name, source)
    assert Plugins.discover().resolve(directory)[1].name == "alpha"


def test_a_plugin_that_chokes_is_named_when_nobody_answers(install: Install, directory: str) -> None:
    install("asr-beta", recognising("beta", "alpha.json", "raise KeyError('model_type')"))
    with pytest.raises(PluginError, match="asr-beta: resolve_checkpoint raised KeyError: 'model_type'"):
        Plugins.discover().resolve(directory)


def test_mine_but_damaged_is_a_claim(install: Install, directory: str) -> None:
    install("asr-beta", recognising("beta", "alpha.json", "raise CheckpointError('config.json is cut off')"))
    with pytest.raises(CheckpointError, match="is cut off"):
        Plugins.discover().resolve(directory)
    install("asr-alpha", recognising("alpha", "alpha.json"))
    with pytest.raises(PluginConflictError, match="asr-alpha and asr-beta"):
        Plugins.discover().resolve(directory)


def test_a_registered_checkpoint_is_never_shown_to_other_plugins(install: Install) -> None:
    install("asr-alpha", models("'some', checkpoints=('org/some',)"))
    install(
        "asr-beta",
        f"{models(repr('greedy'))}".replace(
            "    for card in CARDS:\n        if ref", "    if True:\n        card = CARDS[0]\n        if True or ref"
        ),
    )
    plugins = Plugins.discover()
    assert plugins.resolve("org/some")[2].owner == "asr-alpha"
    assert plugins.resolve("org/else")[2].owner == "asr-beta"


def test_an_owner_must_answer_for_what_it_registered(install: Install) -> None:
    install("asr-alpha", f"{HEAD}\n@hookimpl\ndef register_models(register): register(ModelCard('some'))")
    with pytest.raises(PluginError, match="asr-alpha: it registers 'some', but has no answer to resolve_checkpoint"):
        Plugins.discover().resolve("some")


def test_an_owner_must_answer_with_a_model_of_its_own(install: Install) -> None:
    install("asr-alpha", models("'some'").replace("Checkpoint(card.name", "Checkpoint('good'"))
    install("asr-beta", models("'good'"))
    with pytest.raises(
        PluginError, match=r"asr-alpha: .* the model 'good', which it does not register; it registers some"
    ):
        Plugins.discover().resolve("some")


# Nobody knows it


def test_a_mistyped_model_gets_a_suggestion(install: Install) -> None:
    install("asr-alpha", models("'parrot-base', aliases=('parrot',)", "'finch'"))
    with pytest.raises(ModelNotFoundError) as caught:
        Plugins.discover().resolve("parot-base")
    assert str(caught.value).startswith(
        "no installed plugin knows the model 'parot-base' (did you mean parrot-base or parrot?)"
    )
    assert (caught.value.status, caught.value.param, caught.value.code) == (404, "model", "model_not_found")


def test_an_existing_path_is_said_to_be_unrecognised(install: Install, directory: str) -> None:
    install("asr-alpha", models("'some'"))
    with pytest.raises(ModelNotFoundError, match=r"no installed plugin recognises the checkpoint '.*weights'"):
        Plugins.discover().resolve(directory)


def test_broken_and_blocked_plugins_are_mentioned(install: Install) -> None:
    install("asr-alpha", IMPORT_ERROR)
    install("asr-beta", models("'some'"))
    told = "asr-beta is blocked; asr-alpha failed to load: importing it raised .*; see `asr-core plugins list`"
    plugins = Plugins.discover(block=["asr-beta"])
    for ask in (plugins.resolve, plugins.owner):
        with pytest.raises(ModelNotFoundError, match=told):
            ask("some")


def test_without_any_plugin_it_says_how_to_install_one() -> None:
    # In a process of its own, where no directory that holds installed distributions is left on the path.
    code = """
import importlib.metadata as metadata, sys
from asr_core.plugins import Plugins
sys.path[:] = [path for path in sys.path if not list(metadata.distributions(path=[path]))]
try:
    Plugins.discover().resolve("some")
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(asr_core.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ModelNotFoundError no plugin is installed to serve 'some': install")
    assert "pip install" in done.stdout


# Allow, block, strict

TRACE = "import pathlib; (pathlib.Path(__file__).parent / 'imported').touch()\n"


@pytest.mark.parametrize("how", ["argument", "environment"])
@pytest.mark.parametrize("name", ["asr-alpha", "short", "ASR_Alpha"])
def test_a_blocked_plugin_is_listed_and_never_imported(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, name: str
) -> None:
    install("asr-alpha", TRACE + models("'a'"), entry="short")
    install("asr-beta", models("'b'"))
    monkeypatch.setenv("ASR_CORE_PLUGINS_BLOCK", f" {name} ," if how == "environment" else "asr-beta")
    plugins = Plugins.discover(block=[name] if how == "argument" else None)
    assert [card.name for card in plugins.models()] == ["b"]
    assert record(plugins, "asr-alpha").blocked == "named in the block list"
    assert not (tmp_path / "asr-alpha" / "imported").exists()


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_only_allowed_plugins_are_imported_and_the_core_needs_no_permission(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    install("asr-alpha", TRACE + models("'a'"))
    install("asr-beta", models("'b'"))
    monkeypatch.setenv("ASR_CORE_PLUGINS_ALLOW", "asr-beta" if how == "environment" else "asr-alpha")
    plugins = Plugins.discover(allow=["asr-beta"] if how == "argument" else None)
    assert [card.name for card in plugins.models()] == ["b"]
    assert record(plugins, "asr-alpha").blocked == "not in the allow list"
    assert not (tmp_path / "asr-alpha" / "imported").exists()
    assert plugins.engine("torch").name == "torch"


def test_block_wins_over_allow_and_the_core_engine_can_be_blocked(install: Install) -> None:
    install("asr-alpha", models("'a'"))
    plugins = Plugins.discover(allow=["asr-alpha"], block=["asr-alpha", "embedded"])
    assert plugins.models() == ()
    with pytest.raises(PluginError, match="there are: none; asr-core:embedded is blocked"):
        plugins.engine("torch")


def test_an_empty_variable_is_no_list(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("asr-alpha", models("'a'"))
    monkeypatch.setenv("ASR_CORE_PLUGINS_ALLOW", "")
    assert [card.name for card in Plugins.discover().models()] == ["a"]
    assert Plugins.discover(allow=[]).models() == ()


def test_a_name_in_a_list_that_nothing_has_is_seen(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("asr-alpha", models("'a'"))
    with caplog.at_level(logging.WARNING):
        plugins = Plugins.discover(allow=["asr-alpha", "nonsense"], block=["asr-alfa"])
    assert plugins.warnings == (
        "the allow list names 'nonsense', which is not installed",
        "the block list names 'asr-alfa', which is not installed (did you mean asr-alpha?)",
    )
    assert all(warning in caplog.text for warning in plugins.warnings)
    with pytest.raises(PluginError, match="the block list names 'asr-alfa'"):
        Plugins.discover(block=["asr-alfa"], strict=True)


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_strict_lists_every_problem(install: Install, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    install("asr-alpha", models("'some'"))
    install("asr-beta", models("'some'"))
    install("asr-gamma", IMPORT_ERROR)
    install("asr-delta", f"{HEAD}\n@hookimpl\ndef nativ_limit(model): ...")
    monkeypatch.setenv("ASR_CORE_STRICT", value)
    with pytest.raises(PluginError) as caught:
        Plugins.discover(block=["asr-zeta"])
    for told in ("4 fault(s)", "asr-gamma: importing it raised", "asr-delta: there is no hook nativ_limit", "asr-zeta"):
        assert told in str(caught.value)
    assert str(caught.value).count("'some' is claimed by asr-alpha and asr-beta") == 1
    assert Plugins.discover(strict=False).records


def test_strict_has_nothing_against_sound_and_blocked_plugins(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("asr-alpha", models("'some'"))
    install("asr-gamma", IMPORT_ERROR)
    monkeypatch.setenv("ASR_CORE_STRICT", "0")
    assert record(Plugins.discover(), "asr-gamma").error
    assert Plugins.discover(block=["asr-gamma"], strict=True).resolve("some")[1].name == "some"


# One owner

POLICIES = """
@hookimpl
def capabilities(model): return Capabilities(languages=("x{n}",))
@hookimpl
def native_limit(model): return NativeLimit(16000, {n}.0)
@hookimpl
def chunk_policy(model): return ChunkPolicy(target_s={n}.0)
@hookimpl
def encoder_policy(model): return EncoderPolicy(max_items={n})
@hookimpl
def streaming_policy(model): return StreamingPolicy(rollback_tokens={n})
@hookimpl
def prepare_frontend(model): return {n}
@hookimpl
def prepare_clip(model, clip): return PreparedClip((AudioSpan(0, {n}, 1),))
@hookimpl
def extract_features(model, spans): return [Feature({n}, {n}) for _ in spans]
@hookimpl
def decode_tokens(tokens): return ("{n}",), None
@hookimpl
def review_output(): return Retry("{n}")
@hookimpl
def align_words(): return [Word({n}, {n}, "{n}")]
@hookimpl
def load_weights(model): return Weights(encoder={n})
@hookimpl
def encode_batch(features): return [{n} for _ in features]
@hookimpl
def recognize_batch(features): return [Recognized(({n},), (0.0,)) for _ in features]
"""
HOOKS = [line[4 : line.index("(")] for line in POLICIES.splitlines() if line.startswith("def")]
WRAPPER = "@hookimpl(wrapper=True, tryfirst=True)\ndef {hook}(): yield; return 'wrapped'\n"
OLD_WRAPPER = "@hookimpl(hookwrapper=True, tryfirst=True)\ndef {hook}(): (yield).force_result('wrapped')\n"


def wrappers(template: str) -> str:
    return "".join(template.format(hook=hook) for hook in HOOKS)


def answers(plugins: Plugins, name: str) -> dict[str, Any]:
    """What every routed hook says of a model."""
    checkpoint, card, hooks = plugins.resolve(name)
    clip = Waveform(np.zeros(160, np.float32), 16000, b"").clip()
    bare = CheckpointModel(card, checkpoint)
    model: Any = FrontendModel(card, checkpoint, None)
    output: Any = None
    prepared = hooks.prepare_clip(model, clip, TranscriptionRequest(), ClipContext())
    policies = [hooks.capabilities, hooks.native_limit, hooks.chunk_policy, hooks.encoder_policy]
    (feature,) = hooks.extract_features(model, clip, prepared.spans)
    return {
        "policies": [policy(bare) for policy in (*policies, hooks.streaming_policy)],
        "frontend": hooks.prepare_frontend(bare),
        "clip": prepared,
        "feature": (feature.data, feature.length),
        "piece": hooks.decode_tokens(model, (1,), None, False, ()),
        "review": hooks.review_output(model, output, clip, prepared, TranscriptionRequest(), ClipContext()),
        "words": hooks.align_words(model, output, clip, prepared, None),
        "weights": hooks.load_weights(model, frozenset(), "cpu", "float32").encoder,
        "encoded": hooks.encode_batch(model, [feature]),
        "recognized": hooks.recognize_batch(model, [feature]),
    }


@pytest.mark.parametrize("names", ORDERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "neighbour",
    [
        models("'other'") + POLICIES.format(n=9),
        models("'other'"),
        models("'other'") + wrappers(WRAPPER),
        models("'other'") + wrappers(OLD_WRAPPER),
        HEAD + wrappers(WRAPPER),
    ],
    ids=["other policies", "no policies", "wrappers", "old wrappers", "wrappers without a model"],
)
def test_no_neighbour_changes_a_models_answers(
    install: Install, names: tuple[str, str], order: tuple[str, str], neighbour: str
) -> None:
    sources = {names[0]: models("'some'") + POLICIES.format(n=5), names[1]: neighbour}
    for name in order:
        install(name, sources[name])
    both = answers(Plugins.discover(), "some")
    assert both == answers(Plugins.discover(block=[names[1]]), "some")
    assert both["clip"].spans[0].end_sample == both["frontend"] == 5


@pytest.mark.parametrize("names", ORDERS)
@pytest.mark.parametrize("order", ORDERS)
def test_two_unlike_models_each_get_their_own_answers(
    install: Install, names: tuple[str, str], order: tuple[str, str]
) -> None:
    sources = {name: models(f"'m{n}'") + POLICIES.format(n=n) for name, n in zip(names, (5, 9), strict=True)}
    for name in order:
        install(name, sources[name])
    plugins = Plugins.discover()
    five, nine = answers(plugins, "m5"), answers(plugins, "m9")
    assert (five["frontend"], nine["frontend"]) == (5, 9)
    assert all(five[key] != nine[key] for key in five)
    assert all(mine != other for mine, other in zip(five["policies"], nine["policies"], strict=True))


def test_a_plugin_may_wrap_its_own_hooks(install: Install) -> None:
    wrapper = """
@hookimpl(wrapper=True, specname="native_limit")
def twice():
    limit = yield
    return NativeLimit(limit.sample_rate, 2 * limit.seconds)
"""
    install("asr-alpha", models("'some'") + POLICIES.format(n=5) + wrapper)
    checkpoint, card, hooks = Plugins.discover().resolve("some")
    assert hooks.native_limit(CheckpointModel(card, checkpoint)).seconds == 10.0


def test_a_neighbour_does_not_lend_a_hook_that_the_owner_lacks(install: Install) -> None:
    install("asr-alpha", models("'some'"))
    install("asr-beta", models("'other'") + POLICIES.format(n=9))
    checkpoint, card, hooks = Plugins.discover().resolve("some")
    assert not hooks.has("native_limit")
    with pytest.raises(PluginError, match="asr-alpha: it does not implement native_limit"):
        hooks.native_limit(CheckpointModel(card, checkpoint))
