"""What a plugin's answer turns into: defaults, checks and named faults."""

import inspect
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pluggy
import pytest

from asr_core import hookimpl, hookspecs
from asr_core.errors import InvalidRequestError, PluginError
from asr_core.model_hooks import ModelHooks
from asr_core.types import (
    Accept,
    Alignment,
    Ask,
    AudioSpan,
    Capabilities,
    Checkpoint,
    CheckpointModel,
    ChunkPolicy,
    ClipContext,
    EncoderPolicy,
    Feature,
    FrontendModel,
    ModelCard,
    NativeLimit,
    NoSpeech,
    PreparedClip,
    Probe,
    Recognized,
    Retry,
    Speaker,
    Start,
    StreamingPolicy,
    TranscriptionRequest,
    Waveform,
    Weights,
    Word,
)

QUESTION = Probe("p", ((1,),), (2,))

MODEL = CheckpointModel(ModelCard("some"), Checkpoint("some", "some", None))
FRONTEND: Any = FrontendModel(MODEL.card, MODEL.checkpoint, object())
CLIP = Waveform(np.zeros(1600, np.float32), 16000, b"").clip()
SPANS = (AudioSpan(0, 800, 5), AudioSpan(800, 1600, 5))
FEATURE = Feature(np.zeros((2, 3), np.float32), 3)
PREPARED = PreparedClip(SPANS)

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "resolve_checkpoint": ("some",),
    "capabilities": (MODEL,),
    "native_limit": (MODEL,),
    "chunk_policy": (MODEL,),
    "encoder_policy": (MODEL,),
    "streaming_policy": (MODEL,),
    "prepare_frontend": (MODEL,),
    "prepare_clip": (FRONTEND, CLIP, TranscriptionRequest(), ClipContext()),
    "check_request": (FRONTEND, TranscriptionRequest()),
    "extract_features": (FRONTEND, CLIP, SPANS),
    "decode_tokens": (FRONTEND, (1,), None, False, ()),
    "review_output": (FRONTEND, None, None, PREPARED, TranscriptionRequest(), ClipContext()),
    "align_words": (FRONTEND, None, CLIP, PREPARED, None),
    "prepare_alignment": (FRONTEND, None, PREPARED),
    "load_weights": (FRONTEND, frozenset({"encoder"}), "cpu", "float32"),
    "encode_batch": (FRONTEND, (FEATURE, FEATURE)),
    "recognize_batch": (FRONTEND, (FEATURE, FEATURE)),
}
GOOD: dict[str, Any] = {
    "resolve_checkpoint": MODEL.checkpoint,
    "capabilities": Capabilities(languages=("de",)),
    "native_limit": NativeLimit(16000, 7.0),
    "chunk_policy": ChunkPolicy(target_s=3.0),
    "encoder_policy": EncoderPolicy(max_items=3),
    "streaming_policy": StreamingPolicy(rollback_tokens=1),
    "prepare_frontend": {"tokenizer": "mine"},
    "prepare_clip": PREPARED,
    "check_request": None,
    "extract_features": [FEATURE, FEATURE],
    "decode_tokens": (("a", Start(3), Speaker("1")), 7),
    "review_output": Retry("loop"),
    "prepare_alignment": Alignment((1, 2), ((0, 1),)),
    "align_words": [Word(0, 1, "a")],
    "load_weights": Weights(),
    "encode_batch": [np.zeros((5, 2)), np.zeros((5, 2))],
    "recognize_batch": (Recognized((1,), (0.0,)), Recognized((), ())),
}
DEFAULTS: dict[str, Any] = {
    "resolve_checkpoint": None,
    "capabilities": Capabilities(),
    "chunk_policy": ChunkPolicy(),
    "encoder_policy": EncoderPolicy(),
    "streaming_policy": StreamingPolicy(),
    "check_request": None,
    "review_output": Accept(),
    "prepare_alignment": None,
}
REQUIRED = sorted(ARGUMENTS.keys() - DEFAULTS.keys())
COLLECTED = {"register_models", "register_engines", "register_services", "postprocess_transcript"}


def routed() -> list[str]:
    manager = pluggy.PluginManager("asr_core")
    names = [name for name in dir(hookspecs) if manager.parse_hookspec_opts(hookspecs, name) is not None]
    return [name for name in names if name not in COLLECTED]


def implementing(hook: str, function: Callable[[], Any]) -> ModelHooks:
    """Hooks of a plugin whose ``hook``, which ignores its arguments, does what ``function`` does."""
    manager = pluggy.PluginManager("asr_core")
    manager.add_hookspecs(hookspecs)
    plugin = type("Plugin", (), {})()
    setattr(plugin, hook, hookimpl(lambda: function()))
    manager.register(plugin)
    return ModelHooks("asr-some", {hook: manager.subset_hook_caller(hook, [])})


def raising(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


def call(hooks: ModelHooks, hook: str) -> Any:
    return getattr(hooks, hook)(*ARGUMENTS[hook])


@pytest.mark.parametrize("hook", routed())
def test_every_routed_hook_has_a_method_with_the_contracts_arguments(hook: str) -> None:
    contract = inspect.signature(getattr(hookspecs, hook))
    method = inspect.signature(getattr(ModelHooks, hook))
    assert list(method.parameters.values())[1:] == list(contract.parameters.values())
    assert method.return_annotation == contract.return_annotation


@pytest.mark.parametrize("hook", routed())
def test_a_good_answer_passes_untouched(hook: str) -> None:
    hooks = implementing(hook, lambda: GOOD[hook])
    assert call(hooks, hook) is GOOD[hook]
    assert hooks.has(hook)


@pytest.mark.parametrize("hook", sorted(DEFAULTS))
def test_a_missing_hook_and_none_mean_the_documented_default(hook: str) -> None:
    missing = ModelHooks("asr-some", {})
    assert call(missing, hook) == DEFAULTS[hook]
    assert not missing.has(hook)
    assert call(implementing(hook, lambda: None), hook) == DEFAULTS[hook]


@pytest.mark.parametrize("hook", REQUIRED)
def test_a_missing_required_hook_is_named(hook: str) -> None:
    with pytest.raises(PluginError, match=f"asr-some: it does not implement {hook}, which is required"):
        call(ModelHooks("asr-some", {}), hook)


@pytest.mark.parametrize("hook", REQUIRED)
def test_none_from_a_required_hook_is_named(hook: str) -> None:
    with pytest.raises(PluginError, match=rf"asr-some: {hook} must return .+, got None"):
        call(implementing(hook, lambda: None), hook)


@pytest.mark.parametrize("hook", sorted(ARGUMENTS.keys() - {"prepare_frontend"}))
def test_a_wrong_type_names_plugin_hook_expected_and_got(hook: str) -> None:
    with pytest.raises(PluginError, match=rf"^asr-some: {hook} must return .+, got set$"):
        call(implementing(hook, lambda: {"wrong"}), hook)


@pytest.mark.parametrize(
    ("hook", "answer", "complaint"),
    [
        ("native_limit", 30.0, "must return NativeLimit, got float"),
        ("review_output", True, "must return Accept, Retry, NoSpeech or Ask, got bool"),
        ("review_output", Ask(()), "must return Ask with probes, got none"),
        ("review_output", Ask(QUESTION), "must return a sequence of Probe, got Probe"),  # type: ignore[arg-type]
        ("review_output", Ask(("p",)), "must return Probe throughout, got str among them"),  # type: ignore[arg-type]
        ("extract_features", [FEATURE], "must return 2 items, one per input, got 1"),
        ("extract_features", [FEATURE, np.zeros(3)], "must return Feature throughout, got ndarray among them"),
        ("extract_features", (one for one in (FEATURE, FEATURE)), "must return a sequence of Feature, got generator"),
        ("encode_batch", [np.zeros((5, 2))] * 3, "must return 2 items, one per input, got 3"),
        ("recognize_batch", [(1, 2), (3, 4)], "must return Recognized throughout, got tuple among them"),
        ("align_words", ["word"], "must return Word throughout, got str among them"),
        ("decode_tokens", "text", r"must return \(piece, state\) with a tuple as the piece, got str"),
        ("decode_tokens", ("text", None), r"got \(str, None\)"),
        ("decode_tokens", (("text",), None, 0), r"got \(tuple, None, int\)"),
        ("decode_tokens", ((b"text",), None), "must return strings and marks in the piece, got bytes"),
    ],
)
def test_likely_slips_are_explained(hook: str, answer: Any, complaint: str) -> None:
    with pytest.raises(PluginError, match=f"asr-some: {hook} .*{complaint}"):
        call(implementing(hook, lambda: answer), hook)


@pytest.mark.parametrize("hook", routed())
@pytest.mark.parametrize("error", [KeyError("lost"), StopIteration("early"), SystemExit("bye")], ids=repr)
def test_a_foreign_exception_becomes_a_named_one_and_stays_its_cause(hook: str, error: BaseException) -> None:
    with pytest.raises(PluginError, match=f"asr-some: {hook} raised {type(error).__name__}: .*{error}") as caught:
        call(implementing(hook, raising(error)), hook)
    assert caught.value.__cause__ is error


def parts(answer: Any = None, error: BaseException | None = None) -> Generator[None, None, Any]:
    yield
    if error is not None:
        raise error
    return answer


def test_an_encoding_in_parts_is_checked_where_it_ends() -> None:
    rows = [np.zeros((5, 2))] * 2
    running = call(implementing("encode_batch", lambda: parts(rows)), "encode_batch")
    assert next(running) is None
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value is rows


@pytest.mark.parametrize(
    ("running", "complaint"),
    [
        (parts([np.zeros((5, 2))]), "must return 2 items, one per input, got 1"),
        (parts(), "must return a sequence of object, got None"),
        (parts(error=KeyError("lost")), "raised KeyError: 'lost'"),
        (parts(error=SystemExit("bye")), "raised SystemExit: bye"),
    ],
)
def test_an_encoding_in_parts_fails_as_a_call_does(running: Any, complaint: str) -> None:
    with pytest.raises(PluginError, match=f"asr-some: encode_batch {complaint}"):
        list(call(implementing("encode_batch", lambda: running), "encode_batch"))


def test_closing_an_encoding_in_parts_ends_the_plugins() -> None:
    plugins = parts()
    running = call(implementing("encode_batch", lambda: plugins), "encode_batch")
    next(running)
    running.close()
    assert list(plugins) == []


def test_an_error_of_the_core_reaches_the_caller_as_it_is() -> None:
    error = InvalidRequestError("the prompt holds a special token", param="prompt")
    with pytest.raises(InvalidRequestError) as caught:
        call(implementing("prepare_clip", raising(error)), "prepare_clip")
    assert caught.value is error


def test_ctrl_c_is_not_the_plugins_fault() -> None:
    with pytest.raises(KeyboardInterrupt):
        call(implementing("encode_batch", raising(KeyboardInterrupt())), "encode_batch")


@pytest.mark.parametrize("verdict", [Accept(consumed_to=5), Retry("loop"), NoSpeech(), Ask((QUESTION,))])
def test_review_may_say_any_verdict(verdict: Any) -> None:
    assert call(implementing("review_output", lambda: verdict), "review_output") is verdict


def test_an_empty_piece_is_an_answer() -> None:
    assert call(implementing("decode_tokens", lambda: ((), None)), "decode_tokens") == ((), None)


def test_no_words_are_an_answer() -> None:
    assert call(implementing("align_words", list), "align_words") == []
