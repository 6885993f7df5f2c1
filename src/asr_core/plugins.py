"""Which plugins are installed, what is wrong with some of them, and which one answers for a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

import pluggy
from attrs import evolve, frozen

from asr_core import hookspecs
from asr_core._discovery import BLOCK, COLLECTED, Candidate, admit, claims, conflict, contested, find, near, select
from asr_core.engines.protocol import EngineCard
from asr_core.errors import AsrError, CheckpointError, ModelNotFoundError, PluginConflictError, PluginError
from asr_core.hookspecs import PROJECT
from asr_core.model_hooks import ModelHooks
from asr_core.services import AlignerCard, DetectorCard
from asr_core.types import Capabilities, Checkpoint, CheckpointModel, ModelCard, NativeLimit

ALLOW = "ASR_CORE_PLUGINS_ALLOW"
STRICT = "ASR_CORE_STRICT"

logger = logging.getLogger(__name__)
T = TypeVar("T")


@frozen
class PluginRecord:
    """What became of one installed plugin.

    ``name`` is its entry point's. ``hooks`` are those of the contract that it implements, ``models``, ``engines``,
    ``aligners`` and ``detectors`` the names it registered. ``blocked`` tells why it was not imported, ``error`` why
    nothing of it is used, with ``traceback`` where it raised. ``conflicts`` are names it does not get since another
    plugin claims them too.
    """

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...]
    models: tuple[str, ...]
    engines: tuple[str, ...]
    aligners: tuple[str, ...]
    detectors: tuple[str, ...]
    error: str | None
    traceback: str | None
    blocked: str | None
    conflicts: tuple[str, ...]
    warnings: tuple[str, ...]


class Plugins:
    """The installed plugins after discovery; nothing in it changes later, so any thread may ask.

    ``records`` has one entry per plugin, broken and blocked ones included, the core's own first. ``warnings``
    are complaints about the allow and block lists.
    """

    def __init__(
        self, manager: pluggy.PluginManager, candidates: Collection[Candidate], warnings: Iterable[str]
    ) -> None:
        self._candidates = tuple(candidates)
        healthy = [candidate for candidate in candidates if candidate.healthy]
        self._hooks = {candidate: _routed(manager, candidate) for candidate in healthy if candidate.cards}
        models = claims((ref, candidate) for candidate in healthy for card in candidate.cards for ref in _refs(card))
        engines = claims((card.name, candidate) for candidate in healthy for card in candidate.engines)
        aligners = claims((card.name, candidate) for candidate in healthy for card in candidate.aligners)
        detectors = claims((card.name, candidate) for candidate in healthy for card in candidate.detectors)
        self._owners = {ref: claimants[0] for ref, claimants in models.items()}
        self._contested = contested("model", models)
        self._engines = {card.name: card for candidate in healthy for card in candidate.engines}
        self._contested_engines = contested("engine", engines)
        self._aligners = {card.name: card for candidate in healthy for card in candidate.aligners}
        self._contested_aligners = contested("aligner", aligners)
        self._detectors = {card.name: card for candidate in healthy for card in candidate.detectors}
        self._contested_detectors = contested("detector", detectors)
        self.records = tuple(map(_record, candidates))
        self.warnings = tuple(warnings)

    @classmethod
    def discover(
        cls, allow: Collection[str] | None = None, block: Collection[str] | None = None, strict: bool | None = None
    ) -> Plugins:
        """Import and check what is installed, a plugin at a time.

        ``allow`` and ``block`` hold names of entry points or distributions. What is not given comes from the
        environment: ``ASR_CORE_PLUGINS_ALLOW`` and ``ASR_CORE_PLUGINS_BLOCK``, with commas between names, and
        ``ASR_CORE_STRICT``, ``1`` or ``true``. Faults are logged and recorded.

        Raises:
            PluginError: strict, and anything is wrong with any plugin, two of them together, or the lists.
        """
        candidates = find()
        allowed, blocked = _listed(ALLOW) if allow is None else allow, _listed(BLOCK) if block is None else block
        warnings = select(candidates, allowed, blocked or ())
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(hookspecs)
        for candidate in candidates:
            if candidate.blocked is None:
                admit(manager, candidate)
        plugins = cls(manager, candidates, warnings)
        plugins._complain(_is_strict() if strict is None else strict)
        return plugins

    def models(self) -> tuple[ModelCard, ...]:
        """Cards that one plugin alone claims, by name."""
        cards = (card for owner in self._hooks for card in owner.cards if card.name not in self._contested)
        return tuple(sorted(cards, key=lambda card: card.name))

    def published(self, card: ModelCard) -> tuple[Capabilities, NativeLimit] | None:
        """What the first checkpoint of ``card`` can do and take, as far as its plugin knows without looking."""
        described = self.described(card.name)
        if described is None:
            return None
        model, hooks = described
        return hooks.capabilities(model), hooks.native_limit(model)

    def described(self, ref: str) -> tuple[CheckpointModel, ModelHooks] | None:
        """The registered model ``ref`` with what its plugin knows of its first checkpoint without looking."""
        owner = self._owner(ref)
        if owner is None:
            return None
        card = next(card for card in owner.cards if ref in _refs(card))
        if card.config is None or ref in card.checkpoints[1:]:
            return None
        model = CheckpointModel(card, Checkpoint(card.name, ref, path=None, config=card.config))
        return model, self._hooks[owner]

    def owner(self, name: str) -> PluginRecord:
        """The plugin that registered a model's name, alias or checkpoint.

        Raises:
            ModelNotFoundError: none did.
            PluginConflictError: several did.
        """
        owner = self._owner(name)
        if owner is None:
            raise self._not_found(name)
        return _record(owner)

    def engine(self, name: str) -> EngineCard:
        """The engine of that name.

        Raises:
            PluginError: there is none, or its plugin failed; as PluginConflictError, there are two.
        """
        return self._named("engine", name, self._engines, self._contested_engines)

    def aligner(self, name: str) -> AlignerCard:
        """The aligner of that name.

        Raises:
            PluginError: there is none, or its plugin failed; as PluginConflictError, there are two.
        """
        return self._named("aligner", name, self._aligners, self._contested_aligners)

    def detector(self, name: str) -> DetectorCard:
        """The detector of speech of that name.

        Raises:
            PluginError: there is none, or its plugin failed; as PluginConflictError, there are two.
        """
        return self._named("detector", name, self._detectors, self._contested_detectors)

    def resolve(self, ref: str, checkpoint_ref: str | None = None) -> tuple[Checkpoint, ModelCard, ModelHooks]:
        """The checkpoint that ``ref`` means, the card it belongs to and the hooks of its owner.

        A registered name, alias or checkpoint is its owner's business alone; of anything else every plugin is asked.
        With ``checkpoint_ref`` it is the registered model ``ref``, with the checkpoint that this means to its owner.

        Raises:
            ModelNotFoundError: nobody knows ``ref``.
            PluginConflictError: two plugins claim it.
            CheckpointError: its owner says that it is missing, damaged or not its own.
        """
        owner = self._owner(ref)
        if checkpoint_ref is not None:
            return self._resolve_named(ref, owner, checkpoint_ref)
        if owner is None:
            owner, checkpoint = self._ask_everyone(ref)
        else:
            checkpoint = self._ask(owner, ref)
        return checkpoint, self._card(owner, ref, checkpoint), self._hooks[owner]

    def _named(self, kind: str, name: str, cards: Mapping[str, T], contested: Mapping[str, str]) -> T:
        if name in contested:
            raise PluginConflictError(contested[name])
        if name not in cards:
            there = ", ".join(sorted(cards)) or "none"
            raise PluginError(f"no installed plugin brings the {kind} {name!r}; there are: {there}{self._absent()}")
        return cards[name]

    def _resolve_named(
        self, ref: str, owner: Candidate | None, checkpoint_ref: str
    ) -> tuple[Checkpoint, ModelCard, ModelHooks]:
        if owner is None:
            raise self._not_found(ref)
        checkpoint = self._hooks[owner].resolve_checkpoint(checkpoint_ref)
        if checkpoint is None:
            raise CheckpointError(f"{checkpoint_ref!r} is no checkpoint of {ref!r} that {owner.label} could read")
        card = next(card for card in owner.cards if ref in _refs(card))
        return evolve(checkpoint, model=card.name), card, self._hooks[owner]

    def _owner(self, ref: str) -> Candidate | None:
        if ref in self._contested:
            raise PluginConflictError(self._contested[ref])
        return self._owners.get(ref)

    def _ask(self, owner: Candidate, ref: str) -> Checkpoint:
        checkpoint = self._hooks[owner].resolve_checkpoint(ref)
        if checkpoint is None:
            raise PluginError(f"{owner.label}: it registers {ref!r}, but has no answer to resolve_checkpoint({ref!r})")
        return checkpoint

    def _ask_everyone(self, ref: str) -> tuple[Candidate, Checkpoint]:
        answers = {candidate: _answer(hooks, ref) for candidate, hooks in self._hooks.items()}
        # "It is mine, but damaged" is a claim too. Any other error is not: a plugin that chokes on a stranger's files
        # must not keep their owner from answering.
        claiming = {
            owner: answer for owner, answer in answers.items() if isinstance(answer, Checkpoint | CheckpointError)
        }
        if len(claiming) > 1:
            raise PluginConflictError(conflict("checkpoint", ref, tuple(claiming)))
        for owner, answer in claiming.items():
            if isinstance(answer, Checkpoint):
                return owner, answer
        errors = [answer for answer in (*claiming.values(), *answers.values()) if isinstance(answer, AsrError)]
        raise errors[0] if errors else self._not_found(ref)

    def _card(self, owner: Candidate, ref: str, checkpoint: Checkpoint) -> ModelCard:
        if checkpoint.model in self._contested:
            raise PluginConflictError(self._contested[checkpoint.model])
        for card in owner.cards:
            if card.name == checkpoint.model:
                return card
        own = ", ".join(card.name for card in owner.cards)
        answer = f"resolve_checkpoint({ref!r}) answered with the model {checkpoint.model!r}"
        raise PluginError(f"{owner.label}: {answer}, which it does not register; it registers {own}")

    def _not_found(self, ref: str) -> ModelNotFoundError:
        names = {name for owner in self._hooks for card in owner.cards for name in (card.name, *card.aliases)}
        if all(candidate.in_tree for candidate in self._candidates):
            reason = f"no plugin is installed to serve {ref!r}: install the one of the model, `pip install asr-NAME`"
        elif os.path.exists(ref):
            reason = f"no installed plugin recognises the checkpoint {ref!r}"
        else:
            reason = f"no installed plugin knows the model {ref!r}{near(ref, names)}"
        return ModelNotFoundError(reason + self._absent())

    def _absent(self) -> str:
        """What might have answered, had it not been blocked or broken."""
        blocked = [f"; {one.label} is blocked" for one in self._candidates if one.blocked is not None]
        broken = [f"; {one.label} failed to load: {one.errors[0]}" for one in self._candidates if one.errors]
        return "".join([*blocked, *broken, *(["; see `asr-core plugins list`"] if broken else [])])

    def _complain(self, strict: bool) -> None:
        faults = [f"{one.label}: {error}" for one in self._candidates for error in one.errors]
        faults += dict.fromkeys(message for one in self._candidates for message in one.conflicts)
        faults += self.warnings
        if strict and faults:
            raise PluginError("\n".join([f"{len(faults)} fault(s) of plugins, and strict allows none:", *faults]))
        for fault in faults + [f"{one.label}: {warning}" for one in self._candidates for warning in one.warnings]:
            logger.warning("%s", fault)


def _routed(manager: pluggy.PluginManager, owner: Candidate) -> ModelHooks:
    others = manager.get_plugins() - {owner.plugin}
    hooks = [hook for hook in owner.hooks if hook not in COLLECTED]
    return ModelHooks(owner.label, {hook: manager.subset_hook_caller(hook, others) for hook in hooks})


def _answer(hooks: ModelHooks, ref: str) -> Checkpoint | AsrError | None:
    try:
        return hooks.resolve_checkpoint(ref)
    except AsrError as error:
        return error


def _refs(card: ModelCard) -> set[str]:
    return {card.name, *card.aliases, *card.checkpoints}


def _record(candidate: Candidate) -> PluginRecord:
    return PluginRecord(
        name=candidate.name,
        distribution=candidate.distribution,
        version=candidate.version,
        hooks=candidate.hooks,
        models=tuple(card.name for card in candidate.cards),
        engines=tuple(card.name for card in candidate.engines),
        aligners=tuple(card.name for card in candidate.aligners),
        detectors=tuple(card.name for card in candidate.detectors),
        error="; ".join(candidate.errors) or None,
        traceback=candidate.traceback,
        blocked=candidate.blocked,
        conflicts=tuple(candidate.conflicts),
        warnings=tuple(candidate.warnings),
    )


def _listed(variable: str) -> Collection[str] | None:
    """Names in a comma list; None, which is no list at all, when the variable is unset or empty."""
    return [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()] or None


def _is_strict() -> bool:
    return os.environ.get(STRICT, "").strip().lower() in {"1", "true"}
