"""The routed hooks of one plugin as typed methods: defaults applied, answers checked, faults named."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from attrs import evolve
from pluggy import HookCaller

from asr_core.errors import AsrError, PluginError
from asr_core.types import (
    Accept,
    Alignment,
    Ask,
    AudioSpan,
    Capabilities,
    Checkpoint,
    CheckpointModel,
    ChunkPolicy,
    Clip,
    ClipContext,
    ClipOutput,
    EncoderPolicy,
    End,
    Feature,
    FrontendModel,
    Language,
    LoadedModel,
    NativeLimit,
    NoSpeech,
    Piece,
    PreparedClip,
    Probe,
    Recognized,
    Retry,
    Speaker,
    Start,
    StreamingPolicy,
    Tokens,
    TranscriptionRequest,
    Verdict,
    Weights,
    Word,
)

T = TypeVar("T")

_VERDICT = (Accept, Retry, NoSpeech, Ask)
_PART = (str, Start, End, Speaker, Language)


class ModelHooks:
    """One method per routed hook, with the meaning, thread and default that :mod:`asr_core.hookspecs` gives it.

    Every method raises :class:`~asr_core.errors.PluginError` naming plugin and hook when the hook raises something
    foreign, answers with a value of the wrong type or length, or is required and has no answer. ``owner`` is the
    plugin's name for such messages.
    """

    def __init__(self, owner: str, callers: Mapping[str, HookCaller]) -> None:
        self.owner = owner
        self._callers = dict(callers)

    def has(self, hook: str) -> bool:
        """Whether the plugin implements ``hook`` itself, whatever default there is."""
        return hook in self._callers

    def source(self, hook: str) -> str | None:
        """Where the plugin implements ``hook``, as ``module:function``; None where it leaves it to the default."""
        if hook not in self._callers:
            return None
        function: Any = self._callers[hook].get_hookimpls()[0].function
        return f"{function.__module__}:{function.__qualname__}"

    # Checkpoint stage

    def resolve_checkpoint(self, ref: str) -> Checkpoint | None:
        """None when ``ref`` is not this plugin's."""
        answers: list[Any] = self._call("resolve_checkpoint", ref=ref) or []
        return self._checked("resolve_checkpoint", Checkpoint, answers[0]) if answers else None

    def capabilities(self, model: CheckpointModel) -> Capabilities:
        """``Capabilities()`` unless the plugin says more."""
        return self._ask("capabilities", Capabilities, model=model) or Capabilities()

    def native_limit(self, model: CheckpointModel) -> NativeLimit:
        """Required: no number of another model could stand in for it."""
        return self._require("native_limit", NativeLimit, model=model)

    def chunk_policy(self, model: CheckpointModel) -> ChunkPolicy:
        """``ChunkPolicy()`` unless the plugin says otherwise."""
        return self._ask("chunk_policy", ChunkPolicy, model=model) or ChunkPolicy()

    def encoder_policy(self, model: CheckpointModel) -> EncoderPolicy:
        """``EncoderPolicy()`` unless the plugin says otherwise."""
        return self._ask("encoder_policy", EncoderPolicy, model=model) or EncoderPolicy()

    def streaming_policy(self, model: CheckpointModel) -> StreamingPolicy:
        """``StreamingPolicy()`` unless the plugin says otherwise."""
        return self._ask("streaming_policy", StreamingPolicy, model=model) or StreamingPolicy()

    def prepare_frontend(self, model: CheckpointModel) -> Any:
        """The plugin's own object, never None."""
        return self._require("prepare_frontend", object, model=model)

    # Frontend stage

    def check_request(self, model: FrontendModel, request: TranscriptionRequest) -> None:
        """Nothing to object unless the plugin raises."""
        answer = self._call("check_request", model=model, request=request)
        if answer is not None:
            self._refuse("check_request", "nothing, and raise to object", _kind(answer))

    def prepare_clip(
        self, model: FrontendModel, clip: Clip, request: TranscriptionRequest, context: ClipContext
    ) -> PreparedClip:
        """Required."""
        return self._require("prepare_clip", PreparedClip, model=model, clip=clip, request=request, context=context)

    def extract_features(self, model: FrontendModel, clip: Clip, spans: Sequence[AudioSpan]) -> Sequence[Feature]:
        """One feature per span, or PluginError."""
        features = self._demand("extract_features", model=model, clip=clip, spans=spans)
        return self._each("extract_features", Feature, features, len(spans))

    def decode_tokens(
        self, model: FrontendModel, tokens: Tokens, state: Any, final: bool, times: tuple[int, ...]
    ) -> tuple[Piece, Any]:
        """A piece of strings and marks with the next state; runs once per token."""
        answer = self._demand("decode_tokens", model=model, tokens=tokens, state=state, final=final, times=times)
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], tuple)):
            self._refuse("decode_tokens", "(piece, state) with a tuple as the piece", _outline(answer))
        for part in answer[0]:
            if not isinstance(part, _PART):
                self._refuse("decode_tokens", "strings and marks in the piece", _kind(part))
        return answer

    def review_output(
        self,
        model: FrontendModel,
        output: ClipOutput,
        clip: Clip,
        prepared: PreparedClip,
        request: TranscriptionRequest,
        context: ClipContext,
    ) -> Verdict:
        """``Accept()`` unless the plugin objects."""
        answer = self._call(
            "review_output", model=model, output=output, clip=clip, prepared=prepared, request=request, context=context
        )
        verdict: Verdict = Accept() if answer is None else answer
        if not isinstance(verdict, _VERDICT):
            self._refuse("review_output", "Accept, Retry, NoSpeech or Ask", _kind(verdict))
        if isinstance(verdict, Ask):
            self._check_asked(verdict, prepared)
        return verdict

    def _check_asked(self, verdict: Ask, prepared: PreparedClip) -> None:
        if not (verdict.probes and self._each("review_output", Probe, verdict.probes)):
            self._refuse("review_output", "Ask with probes", "none")
        try:
            evolve(prepared, probes=verdict.probes)
        except ValueError as error:
            self._refuse("review_output", "probes of rows that are there", str(error))

    def prepare_alignment(self, model: FrontendModel, output: ClipOutput, prepared: PreparedClip) -> Alignment | None:
        """None unless the plugin wants to see attention."""
        return self._ask("prepare_alignment", Alignment, model=model, output=output, prepared=prepared)

    def align_words(
        self, model: FrontendModel, output: ClipOutput, clip: Clip, prepared: PreparedClip, attention: Any
    ) -> Sequence[Word]:
        """As many words as the plugin finds; required where word times are promised."""
        words = self._demand(
            "align_words", model=model, output=output, clip=clip, prepared=prepared, attention=attention
        )
        return self._each("align_words", Word, words)

    # Weights stage

    def load_weights(self, model: FrontendModel, parts: frozenset[str], device: str, dtype: str) -> Weights:
        """Required."""
        return self._require("load_weights", Weights, model=model, parts=parts, device=device, dtype=dtype)

    def encode_batch(
        self, model: LoadedModel, features: Sequence[Feature]
    ) -> Sequence[Any] | Generator[None, None, Sequence[Any]]:
        """One tensor per feature, or PluginError; rows are counted by the encoder service, which knows the spans.

        A generator's parts and its rows are checked as they come; it works where it is iterated.
        """
        encoded = self._demand("encode_batch", model=model, features=features)
        if isinstance(encoded, Generator):
            return self._in_parts("encode_batch", encoded, len(features))
        return self._each("encode_batch", object, encoded, len(features))

    def recognize_batch(self, model: LoadedModel, features: Sequence[Feature]) -> Sequence[Recognized]:
        """One result per feature, or PluginError; ask :meth:`has` first."""
        results = self._demand("recognize_batch", model=model, features=features)
        return self._each("recognize_batch", Recognized, results, len(features))

    # What all of them share

    def _call(self, hook: str, **arguments: Any) -> Any:
        caller = self._callers.get(hook)
        if caller is None:
            return None
        try:
            return caller(**arguments)
        except AsrError:
            raise
        # SystemExit too: a library that calls exit() must not take the server with it.
        except (Exception, SystemExit) as error:
            raise self._raised(hook, error) from error

    def _in_parts(
        self, hook: str, parts: Generator[None, None, Any], count: int
    ) -> Generator[None, None, Sequence[Any]]:
        try:
            answer = yield from parts
        except AsrError:
            raise
        except (Exception, SystemExit) as error:
            raise self._raised(hook, error) from error
        return self._each(hook, object, answer, count)

    def _raised(self, hook: str, error: BaseException) -> PluginError:
        return PluginError(f"{self.owner}: {hook} raised {type(error).__name__}: {error}")

    def _demand(self, hook: str, **arguments: Any) -> Any:
        if hook not in self._callers:
            raise PluginError(f"{self.owner}: it does not implement {hook}, which is required here")
        return self._call(hook, **arguments)

    def _ask(self, hook: str, expected: type[T], **arguments: Any) -> T | None:
        answer = self._call(hook, **arguments)
        return None if answer is None else self._checked(hook, expected, answer)

    def _require(self, hook: str, expected: type[T], **arguments: Any) -> T:
        return self._checked(hook, expected, self._demand(hook, **arguments))

    def _checked(self, hook: str, expected: type[T], answer: Any) -> T:
        # None is an object, but nowhere an answer.
        if answer is None or not isinstance(answer, expected):
            self._refuse(hook, expected.__name__, _kind(answer))
        return answer

    def _each(self, hook: str, expected: type[T], answer: Any, count: int | None = None) -> Sequence[T]:
        if not isinstance(answer, Sequence):
            self._refuse(hook, f"a sequence of {expected.__name__}", _kind(answer))
        for item in answer:
            if not isinstance(item, expected):
                self._refuse(hook, f"{expected.__name__} throughout", f"{_kind(item)} among them")
        if count is not None and len(answer) != count:
            self._refuse(hook, f"{count} items, one per input", str(len(answer)))
        return answer

    def _refuse(self, hook: str, expected: str, got: str) -> NoReturn:
        raise PluginError(f"{self.owner}: {hook} must return {expected}, got {got}")


def _kind(answer: object) -> str:
    return "None" if answer is None else type(answer).__name__


def _outline(answer: object) -> str:
    """The types inside a tuple too: ``("text", state)`` instead of ``(("text",), state)`` is the likely slip."""
    return f"({', '.join(map(_kind, answer))})" if isinstance(answer, tuple) else _kind(answer)
