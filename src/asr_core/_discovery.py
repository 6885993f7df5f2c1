"""One plugin from its entry point to checked registrations; whatever is wrong with it stays its own."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

import pluggy
from attrs import Factory, define, field

from asr_core import hookspecs
from asr_core.engines.protocol import EngineCard
from asr_core.hookspecs import HOOK_API, PROJECT
from asr_core.services import AlignerCard, DetectorCard
from asr_core.types import ModelCard

CORE = "asr-core"
BLOCK = "ASR_CORE_PLUGINS_BLOCK"
IN_TREE = {"embedded": "asr_core.engines.embedded", "vad": "asr_core.vad.plugin"}
"""The core's own plugins: an engine and detectors of speech."""

COLLECTED = frozenset({"register_models", "register_engines", "register_services", "postprocess_transcript"})

Contract = Mapping[str, tuple[str, ...]]
T = TypeVar("T")


@define(eq=False)
class Candidate:
    """A plugin on its way through discovery; ``label`` is how messages call it, and a name to block it by."""

    name: str
    distribution: str
    version: str
    load: Callable[[], Any]
    label: str = field()
    blocked: str | None = None
    plugin: Any = None
    hooks: tuple[str, ...] = ()
    cards: tuple[ModelCard, ...] = ()
    engines: tuple[EngineCard, ...] = ()
    aligners: tuple[AlignerCard, ...] = ()
    detectors: tuple[DetectorCard, ...] = ()
    errors: list[str] = Factory(list)
    conflicts: list[str] = Factory(list)
    warnings: list[str] = Factory(list)
    traceback: str | None = None

    @label.default
    def _label(self) -> str:
        return self.distribution

    @property
    def in_tree(self) -> bool:
        """Whether it is part of the core, and so there without anybody installing it."""
        return self.distribution == CORE

    @property
    def healthy(self) -> bool:
        """Whether its hooks may be called; a contested name is no illness."""
        return self.blocked is None and not self.errors

    @property
    def names(self) -> set[str]:
        """What allow and block lists may call it, in canonical spelling."""
        return {canonical(self.name), canonical(self.distribution), canonical(self.label)}


def canonical(name: str) -> str:
    """The spelling in which ``Asr_X`` and ``asr-x`` are one distribution, as on package indexes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find() -> list[Candidate]:
    """The core's own plugins, then every installed entry point, by distribution and name and not by install order."""
    points = importlib.metadata.entry_points(group=PROJECT)
    found = [Candidate(point.name, *_origin(point.dist), point.load) for point in points]
    found.sort(key=lambda candidate: (candidate.distribution, candidate.name))
    found = [*_in_tree(), *found]
    together = Counter(candidate.distribution for candidate in found)
    for candidate in found:
        if together[candidate.distribution] > 1:
            candidate.label = f"{candidate.distribution}:{candidate.name}"
    return found


def _in_tree() -> list[Candidate]:
    try:
        version = importlib.metadata.version(CORE)
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        version = "unknown"
    return [Candidate(name, CORE, version, partial(importlib.import_module, IN_TREE[name])) for name in IN_TREE]


def _origin(distribution: importlib.metadata.Distribution | None) -> tuple[str, str]:
    # A damaged .dist-info knows neither name nor version, and must not stop the others.
    if distribution is None:
        return "unknown", "unknown"
    metadata = distribution.metadata
    name, version = ((metadata.get_all(header) or ["unknown"])[0] for header in ("Name", "Version"))
    return name, version


def select(candidates: Sequence[Candidate], allow: Collection[str] | None, block: Collection[str]) -> list[str]:
    """Block what the lists say and return complaints about names in them that nothing installed has.

    The core's own plugins need no permission: an allow list speaks of what was installed. They can be blocked.
    """
    allowed, blocked = {canonical(name) for name in allow or ()}, {canonical(name) for name in block}
    for candidate in candidates:
        if candidate.names & blocked:
            candidate.blocked = "named in the block list"
        elif allow is not None and not candidate.in_tree and not candidate.names & allowed:
            candidate.blocked = "not in the allow list"
    known = set[str]().union(*(candidate.names for candidate in candidates))
    lists = [("allow", name) for name in sorted(allowed)] + [("block", name) for name in sorted(blocked)]
    return [
        f"the {which} list names {name!r}, which is not installed{near(name, known)}"
        for which, name in lists
        if name not in known
    ]


def near(name: str, known: Collection[str]) -> str:
    """A question to add to a complaint, empty when nothing known is spelt alike."""
    matches = get_close_matches(name, sorted(known), n=3)
    return f" (did you mean {' or '.join(matches)}?)" if matches else ""


def contract(manager: pluggy.PluginManager) -> Contract:
    """Argument names of every hook that exists."""
    return {
        name: tuple(inspect.signature(getattr(hookspecs, name)).parameters)
        for name in dir(hookspecs)
        if manager.parse_hookspec_opts(hookspecs, name) is not None
    }


def admit(manager: pluggy.PluginManager, candidate: Candidate) -> None:
    """Import a plugin, collect what it registers, and let it into ``manager`` if nothing is wrong with it."""
    with _blamed(candidate, "importing it"):
        candidate.plugin = candidate.load()
        hash(candidate.plugin)  # routing keeps plugins in sets, so this one would break all others later
    if not candidate.errors:
        with _blamed(candidate, "reading its hooks"):
            _examine(candidate)
    if (twin := manager.get_name(candidate.plugin)) is not None:
        candidate.errors.append(f"it is the very object that {twin} is; only that one is used")
    if not candidate.errors:
        with _blamed(candidate, "registering its hooks"):
            manager.register(candidate.plugin, candidate.label)
    unused = sorted(set(candidate.hooks) - COLLECTED)
    if unused and candidate.healthy and not candidate.cards:
        candidate.warnings.append(f"it registers no model, so these hooks are never called: {', '.join(unused)}")


@contextmanager
def _blamed(candidate: Candidate, doing: str) -> Iterator[None]:
    """Book what is raised on the plugin's account; SystemExit too, as some packages exit where they should raise."""
    try:
        yield
    except (Exception, SystemExit) as error:
        candidate.errors.append(f"{doing} raised {type(error).__name__}: {error}")
        candidate.traceback = traceback.format_exc()


def _examine(candidate: Candidate) -> None:
    # A manager of its own that knows no contract takes every hook: so all faults are told and not only the first, and
    # no other plugin is near while this one registers.
    alone = pluggy.PluginManager(PROJECT)
    alone.register(candidate.plugin)
    known = contract(alone)
    callers = {caller.name: caller for caller in alone.get_hookcallers(candidate.plugin) or ()}
    candidate.hooks = tuple(sorted(callers.keys() & known.keys()))
    for name in candidate.hooks:
        candidate.errors += _misfits(callers[name], known[name])
    if not candidate.errors:
        candidate.cards = _registered(candidate, callers.get("register_models"), ModelCard)
        candidate.engines = _registered(candidate, callers.get("register_engines"), EngineCard)
        services = _registered(candidate, callers.get("register_services"), AlignerCard, DetectorCard)
        candidate.aligners = tuple(card for card in services if isinstance(card, AlignerCard))
        candidate.detectors = tuple(card for card in services if isinstance(card, DetectorCard))
        candidate.errors += [*_foreign(candidate), *_repeated(candidate)]
    candidate.errors += _unknown(callers, known)


def _unknown(callers: Mapping[str, pluggy.HookCaller], known: Contract) -> Iterator[str]:
    if not callers:
        yield "it has no hooks: mark its functions with @asr_core.hookimpl"
    for name in sorted(callers.keys() - known.keys()):
        if not all(implementation.optionalhook for implementation in callers[name].get_hookimpls()):
            yield f"there is no hook {name}{near(name, known)}"


def _misfits(caller: pluggy.HookCaller, arguments: Sequence[str]) -> Iterator[str]:
    implementations = caller.get_hookimpls()
    for name in (name for one in implementations for name in (*one.argnames, *one.kwargnames)):
        if name not in arguments:
            yield f"{caller.name} has no argument {name}, only {', '.join(arguments)}{near(name, arguments)}"
    if sum(not (one.wrapper or one.hookwrapper) for one in implementations) > 1:
        yield f"{caller.name} is implemented twice"


def _registered(candidate: Candidate, caller: pluggy.HookCaller | None, *kinds: type[T]) -> tuple[T, ...]:
    if caller is None:
        return ()
    registered: list[Any] = []
    with _blamed(candidate, caller.name):
        caller(register=registered.append)
    for one in registered:
        if not isinstance(one, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            candidate.errors.append(f"{caller.name} registered {one!r}, which is no {expected}")
    return tuple(one for one in registered if isinstance(one, kinds))


def _foreign(candidate: Candidate) -> Iterator[str]:
    for api in sorted({card.hook_api for card in candidate.cards} - {HOOK_API}):
        older = CORE if api > HOOK_API else candidate.distribution
        yield f"built for hook API {api}, this {CORE} speaks {HOOK_API}: upgrade {older}"


def _repeated(candidate: Candidate) -> Iterator[str]:
    """Names that one plugin gives twice; its cards may share a checkpoint, as it can tell them apart itself."""
    names = {
        "model": [name for card in candidate.cards for name in {card.name, *card.aliases}],
        "engine": [card.name for card in candidate.engines],
        "aligner": [card.name for card in candidate.aligners],
        "detector": [card.name for card in candidate.detectors],
    }
    for kind, given in names.items():
        repeated = sorted(name for name, count in Counter(given).items() if count > 1)
        yield from (f"it registers the {kind} {name!r} twice" for name in repeated)


def claims(pairs: Iterable[tuple[str, Candidate]]) -> dict[str, tuple[Candidate, ...]]:
    """Who claims each name, once however many cards it has there."""
    claimants: dict[str, dict[Candidate, None]] = {}
    for name, candidate in pairs:
        claimants.setdefault(name, {})[candidate] = None
    return {name: tuple(candidates) for name, candidates in claimants.items()}


def contested(kind: str, claimed: Mapping[str, Sequence[Candidate]]) -> dict[str, str]:
    """What to say of each name that several claim, noted with all of them: nobody gets it, whoever came first."""
    messages = {name: conflict(kind, name, claimants) for name, claimants in claimed.items() if len(claimants) > 1}
    for name, message in messages.items():
        for claimant in claimed[name]:
            claimant.conflicts.append(message)
    return messages


def conflict(kind: str, name: str, claimants: Sequence[Candidate]) -> str:
    """Names all owners, and how to be rid of each."""
    owners = " and ".join(claimant.label for claimant in claimants)
    ways = " or ".join(f"{BLOCK}={claimant.label}" for claimant in claimants)
    return f"the {kind} {name!r} is claimed by {owners}, so nobody gets it; block all but one: {ways}"
