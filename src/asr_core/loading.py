"""Opening a model: from a name to weights in memory and an engine, refusing what can be refused early."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from attrs import Factory, evolve, fields, frozen

from asr_core._discovery import near
from asr_core.engines.compute import Compute
from asr_core.engines.protocol import Engine, EngineCard
from asr_core.errors import AsrError, CheckpointError, EngineError, EngineMismatchError, PluginError, PolicyError
from asr_core.longform import Splitting
from asr_core.model_hooks import ModelHooks
from asr_core.plugins import Plugins
from asr_core.runtime.encoder import EncoderService
from asr_core.services import Aligner, DetectorCard, VoiceDetector
from asr_core.types import (
    Capabilities,
    CheckpointModel,
    ChunkPolicy,
    EncoderPolicy,
    FrontendModel,
    LoadedModel,
    ModelCard,
    NativeLimit,
    TranscriptionRequest,
)

T = TypeVar("T")

DTYPES = ("float32", "bfloat16", "float16", "int8")

RESERVED = frozenset(field.name for field in fields(TranscriptionRequest)) | {
    "file",
    "model",
    "languages",
    "response_format",
    "include",
    "timestamp_granularities",
    "stream",
    "chunking_strategy",
    "known_speaker_names",
    "known_speaker_references",
}
"""Names of fields that mean the same for every model: the request's own, and those of OpenAI's API."""


DETECTOR = "energy"
"""Name of the detector of speech that is there without any plugin."""


@frozen
class EngineOptions:
    """Which engine runs a model, on what, and how what it hears is cut.

    ``aligner`` times its words, None for the model's own times if any. ``vad`` names the detector whose pauses long
    audio is cut at, and by which is skipped what is no speech; None takes the built-in one and skips silence alone.
    ``chunk`` holds fields of ChunkPolicy that take the place of the plugin's.

    ``auto`` takes CUDA if there is one, and bfloat16 where the device multiplies it faster than float32; a plugin
    refuses a dtype its model cannot bear when it loads the weights.
    """

    engine: str = "torch"
    device: str = "auto"
    dtype: str = "auto"
    aligner: str | None = None
    vad: str | None = None
    chunk: Mapping[str, Any] = Factory(dict)


@frozen(eq=False)
class ServedModel:
    """A model ready to transcribe, with the answers its plugin gave once at the checkpoint stage.

    ``capabilities`` are the plugin's, the engine's and the aligner's together. ``engine`` and ``engine_name`` are None
    for a model that recognises without generating, ``aligner`` and ``aligner_name`` where none was asked for.
    ``native_limit`` and the policies are the plugin's, of ``chunk_policy`` what the operator did not override.
    ``detector_name`` is None where none was asked for.
    """

    hooks: ModelHooks
    model: LoadedModel
    encoder: EncoderService
    engine: Engine | None
    engine_name: str | None
    compute: Compute
    capabilities: Capabilities
    native_limit: NativeLimit
    chunk_policy: ChunkPolicy
    encoder_policy: EncoderPolicy
    detector: VoiceDetector
    detector_name: str | None = None
    aligner: Aligner | None = None
    aligner_name: str | None = None

    @property
    def splitting(self) -> Splitting:
        """What decides where its audio is cut."""
        return Splitting(self.native_limit, self.chunk_policy, self.detector, self.detector_name is not None)

    @property
    def card(self) -> ModelCard:
        """The card under which it answers."""
        return self.model.card

    @property
    def placement(self) -> str:
        """One line for people: what runs this model, where, in which dtype."""
        words = f", words timed by {self.aligner_name}" if self.aligner_name else ""
        return f"{self.card.name}: engine {self.engine_name or 'none'}, {self.model.device}, {self.model.dtype}{words}"

    def close(self) -> None:
        """Fail what still runs and take no more; the compute thread belongs to whoever made it."""
        # In the order requests go, so that none is let into an engine that closes.
        self.encoder.close()
        if self.engine is not None:
            self.engine.close()
        if (close := getattr(self.aligner, "close", None)) is not None:
            close()


def open_model(
    plugins: Plugins, reference: str, options: EngineOptions, compute: Compute, checkpoint_ref: str | None = None
) -> ServedModel:
    """Find, check and load the model that ``reference`` (name, directory, file, hub id) means.

    With ``checkpoint_ref`` it is the model named ``reference``, with that checkpoint in place of its own.

    Raises:
        ModelNotFoundError: nobody knows the reference.
        PluginError: the plugin breaks the contract, or nobody brings the engine or the aligner.
        EngineMismatchError: the engine lacks what the model cannot do without.
        EngineError: the engine cannot start.
        CheckpointError: weights missing or damaged, or an unknown device or dtype.
    """
    checkpoint, card, hooks = plugins.resolve(reference, checkpoint_ref)
    named = CheckpointModel(card, checkpoint)
    capabilities, native_limit = hooks.capabilities(named), hooks.native_limit(named)
    chunk_policy, encoder_policy = served_policy(hooks, named, options.chunk), hooks.encoder_policy(named)
    _check_options(hooks.owner, capabilities)
    engine_card = plugins.engine(options.engine) if capabilities.generates else None
    if engine_card is not None:
        capabilities = served_capabilities(card.name, capabilities, engine_card)
    aligner_card = None if options.aligner is None else plugins.aligner(options.aligner)
    if aligner_card is not None:
        capabilities = evolve(capabilities, word_times=True)
    detector = open_detector(plugins.detector(options.vad or DETECTOR))
    device, dtype = _placement(options, card.name, capabilities)
    ready = FrontendModel(card, checkpoint, hooks.prepare_frontend(named))
    parts = frozenset({"encoder"}) if engine_card is None else engine_card.parts
    # Whichever thread computes keeps OpenMP threads of its own from then on, and with more of those than processors
    # none of them waits for work without going to sleep, which made every small product take 50 us longer.
    weights = compute.submit(hooks.load_weights, ready, parts, device, dtype).result()
    model = LoadedModel(card, checkpoint, ready.frontend, weights, device, dtype)
    aligner: Aligner | None = None
    if aligner_card is not None:
        from asr_core.kernels import Numbers  # torch, which not every command waits for

        create_aligner = partial(aligner_card.create, device, Numbers.of(dtype, device).dtype)
        aligner = _started(f"aligner {aligner_card.name!r}", create_aligner, PluginError)
    engine: Engine | None = None
    if engine_card is not None:
        engine = _started(f"engine {engine_card.name!r}", partial(engine_card.create, model, compute), EngineError)
    engine_name = None if engine_card is None else engine_card.name
    encoder = EncoderService(hooks, model, encoder_policy, compute, generates=capabilities.generates)
    return ServedModel(
        hooks,
        model,
        encoder,
        engine,
        engine_name,
        compute,
        capabilities,
        native_limit,
        chunk_policy,
        encoder_policy,
        detector,
        options.vad,
        aligner,
        options.aligner,
    )


def open_detector(card: DetectorCard) -> VoiceDetector:
    """What ``card`` stands for, ready.

    Raises:
        PluginError: it cannot start.
    """
    return _started(f"detector {card.name!r}", card.create, PluginError)


def _started(what: str, create: Callable[[], T], failure: type[AsrError]) -> T:
    try:
        return create()
    except AsrError:
        raise
    except Exception as error:
        raise failure(f"{what} cannot start: {type(error).__name__}: {error}") from error


_KINDS = {float: "a finite number", int: "a whole number", bool: "true or false", NoneType: "none"}


def served_policy(hooks: ModelHooks, model: CheckpointModel, overrides: Mapping[str, Any]) -> ChunkPolicy:
    """The plugin's policy with the operator's ``overrides`` in it.

    Raises:
        PolicyError: a field is unknown, mistyped, out of range, above the native limit, or of no use to the model.
        PluginError: the plugin's own policy is above its native limit.
    """
    own, native = hooks.chunk_policy(model), hooks.native_limit(model)
    if message := _above(own, native):
        raise PluginError(f"{hooks.owner}: chunk_policy: {message}")
    policy = _overridden(own, overrides)
    if message := _above(policy, native):
        raise PolicyError(f"{message} of {model.card.name!r}", param="target_s")
    if policy.carry_text and "carry_text" in overrides and hooks.capabilities(model).prompt != "previous_text":
        message = f"carry_text needs a model to whom a prompt is previous text, which it is not to {model.card.name!r}"
        raise PolicyError(message, param="carry_text")
    return policy


def _above(policy: ChunkPolicy, native: NativeLimit) -> str | None:
    if policy.target_s is None or native.seconds is None or policy.target_s <= native.seconds:
        return None
    source = native.sources.get("seconds", "its plugin")
    return f"target_s is {policy.target_s:g} s, above the native limit of {native.seconds:g} s ({source})"


def _overridden(policy: ChunkPolicy, overrides: Mapping[str, Any]) -> ChunkPolicy:
    kinds = get_type_hints(ChunkPolicy)
    for name, value in overrides.items():
        if name not in kinds:
            message = f"no field of a chunk policy is called {name!r}{near(name, kinds)}; there are {', '.join(kinds)}"
            raise PolicyError(message, param=name)
        try:
            policy = evolve(policy, **{name: _typed(name, get_args(kinds[name]) or (kinds[name],), value)})
        except (ValueError, OverflowError) as error:
            raise PolicyError(f"{error}, not {value!r}", param=name) from error
    return policy


def _typed(name: str, kinds: tuple[type, ...], value: Any) -> Any:
    if float in kinds and type(value) is int:
        value = float(value)
    # To Python, True is a whole number, and infinity a number.
    fits = isinstance(value, kinds) and isinstance(value, bool) == (bool in kinds)
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name} must be {' or '.join(_KINDS[kind] for kind in kinds)}")
    return value


def _check_options(owner: str, capabilities: Capabilities) -> None:
    if taken := {option.name for option in capabilities.options} & RESERVED:
        raise PluginError(f"{owner}: these fields of every request cannot be options: {', '.join(sorted(taken))}")


def served_capabilities(name: str, wanted: Capabilities, engine: EngineCard) -> Capabilities:
    """What the model can do on this engine: a capability the engine cannot carry is withdrawn.

    Raises:
        EngineMismatchError: no task is left.
    """
    lacking = {what: needs - engine.features for what, needs in wanted.requires.items() if needs - engine.features}
    tasks = frozenset(task for task in wanted.tasks if task not in lacking)
    if not tasks:
        missing = ", ".join(sorted(frozenset().union(*lacking.values())))
        raise EngineMismatchError(f"engine {engine.name!r} cannot run {name!r}: it lacks {missing}")
    options = tuple(option for option in wanted.options if option.name not in lacking)
    requires = {what: needs for what, needs in wanted.requires.items() if what not in lacking}
    others = lacking.keys() - wanted.tasks - {option.name for option in wanted.options}
    without = {what: _without(what) for what in others}
    return evolve(wanted, tasks=tasks, options=options, requires=requires, **without)


def _without(capability: str) -> Any:
    """The value of a field of Capabilities that says the model cannot do this."""
    return getattr(Capabilities(), capability)


def _placement(options: EngineOptions, name: str, capabilities: Capabilities) -> tuple[str, str]:
    import torch

    from asr_core.kernels import INT8, fastest_dtype, has_int8

    device, dtype = options.device, options.dtype
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = fastest_dtype(device, int8=capabilities.int8 == "automatic")
    if dtype not in DTYPES:
        raise CheckpointError(f"unknown dtype {dtype!r}; choose auto, {', '.join(DTYPES)}", param="dtype")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f"device {device!r} cannot be used here: {error}", param="device") from error
    if dtype == INT8 and capabilities.int8 == "refused":
        raise CheckpointError(f"{name} cannot be computed in int8", param="dtype")
    if dtype == INT8 and not (device.startswith("cpu") and has_int8()):
        raise CheckpointError("int8 is computed on x86 processors only, by a torch that has fbgemm", param="dtype")
    return device, dtype
