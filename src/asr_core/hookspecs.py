"""The whole plugin contract: pluggy hooks, entry-point group ``asr_core``.

A plugin is a module (or object) with functions marked ``@asr_core.hookimpl`` under the names below; it may leave out
any trailing or middle argument it does not use. Three hooks *register* and are collected from every plugin; they run at
start-up and must import nothing heavy. All others are *routed*: for a given model only the one plugin that registered
its card is asked, whatever else is installed and in whatever order.

Stages say how much of a model is in memory when a hook runs, and so which handle it gets:

==============  =========================================  ==================================================
stage           handle                                     in memory
==============  =========================================  ==================================================
*checkpoint*    :class:`~asr_core.types.CheckpointModel`   configuration; all policies answer here
*frontend*      :class:`~asr_core.types.FrontendModel`     tokenizer and feature extractor
*weights*       :class:`~asr_core.types.LoadedModel`       everything
==============  =========================================  ==================================================

Threads: *start-up* hooks run once on the thread that opens the model; *worker* hooks on any of several threads, maybe
at once for different clips, so they must not write to the model; *compute* hooks on the one thread that computes, one
at a time and without gradients; *loop* hooks between other requests' events, so they must take microseconds.

Exceptions: an :class:`~asr_core.errors.AsrError` raised by a hook reaches the caller as it is, any other exception
becomes a :class:`~asr_core.errors.PluginError` that names plugin and hook, and fails only the request it arose in.
A routed hook that is missing or returns None has the default stated in its docstring; where none is stated it is
required. Hooks marked *provisional* have no caller yet and may change until one exists.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

from asr_core.types import (
    Alignment,
    AudioSpan,
    Capabilities,
    Checkpoint,
    CheckpointModel,
    ChunkPolicy,
    Clip,
    ClipContext,
    ClipOutput,
    EncoderPolicy,
    Feature,
    FrontendModel,
    LoadedModel,
    ModelCard,
    NativeLimit,
    Piece,
    PreparedClip,
    Recognized,
    StreamingPolicy,
    Tokens,
    Transcript,
    TranscriptionRequest,
    Verdict,
    Weights,
    Word,
)

if TYPE_CHECKING:
    from asr_core.engines.protocol import EngineCard
    from asr_core.services import ServiceCard

HOOK_API = 0
"""Number of this contract; free to change until the author kit makes it 1, from then on hooks are only added."""

PROJECT = "asr_core"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# Registration: collected from every plugin


@hookspec
def register_models(register: Callable[[ModelCard], None]) -> None:
    """Call ``register(card)`` for each model this plugin owns. Start-up; must not import torch or transformers."""


@hookspec
def register_engines(register: Callable[[EngineCard], None]) -> None:
    """Call ``register(card)`` for each engine this plugin brings; chosen by name, never by install order. Start-up."""


@hookspec
def register_services(register: Callable[[ServiceCard], None]) -> None:
    """Call ``register(card)`` for each aligner or detector of speech this plugin brings; chosen by name. Start-up."""


# Finding a checkpoint


@hookspec
def resolve_checkpoint(ref: str) -> Checkpoint | None:
    """The checkpoint that ``ref`` means: a registered name or alias, a directory, a file, or a hub id.

    Asked of the owner when ``ref`` is a registered name, alias or checkpoint, else of every plugin; a plugin answers
    None for what is not its own, and two answers are an error that names both. Reads configuration only.

    Raises:
        CheckpointError: ``ref`` is this plugin's, but missing or damaged; the message says what would help.
    """


# Policy and facts, at the checkpoint stage


@hookspec(firstresult=True)
def capabilities(model: CheckpointModel) -> Capabilities:
    """What this checkpoint can do. Start-up. Default: ``Capabilities()``, transcription and nothing else."""


@hookspec(firstresult=True)
def native_limit(model: CheckpointModel) -> NativeLimit:
    """What one forward pass takes, and where each number comes from. Start-up. Required."""


@hookspec(firstresult=True)
def chunk_policy(model: CheckpointModel) -> ChunkPolicy:
    """How long audio is cut and what counts as silence. Start-up. Default: ``ChunkPolicy()``."""


@hookspec(firstresult=True)
def encoder_policy(model: CheckpointModel) -> EncoderPolicy:
    """How spans are batched and cached. Start-up. Default: ``EncoderPolicy()``."""


@hookspec(firstresult=True)
def streaming_policy(model: CheckpointModel) -> StreamingPolicy:
    """When text becomes final, and how live text is refreshed. Default: ``StreamingPolicy()``.

    Committed text is sent and never taken back. ``commit`` says when: ``token`` as it is decoded, ``segment`` at the
    token that holds an :class:`~asr_core.types.End`, ``clip`` at the clip's end. Review runs before each commit, so a
    plugin with a ``review_output`` commits by ``clip`` if it does not implement this hook, and every ``review_tokens``
    tokens if it says ``token``. A model that does not generate commits by ``clip``. The fields on refreshing are
    *provisional*.
    """


# Frontend: tokenizer, features, text


@hookspec(firstresult=True)
def prepare_frontend(model: CheckpointModel) -> Any:
    """Load tokenizer and feature extractor once; what is returned is the plugin's own. Start-up. Required."""


@hookspec(firstresult=True)
def check_request(model: FrontendModel, request: TranscriptionRequest) -> None:
    """Refuse what only the plugin can judge (a prompt with special tokens, an option out of range). Worker.

    Called before audio is decoded, after the core has checked the request against the capabilities. Optional.

    Raises:
        InvalidRequestError: with the field at fault as ``param``.
    """


@hookspec(firstresult=True)
def prepare_clip(model: FrontendModel, clip: Clip, request: TranscriptionRequest, context: ClipContext) -> PreparedClip:
    """Turn a clip and the request into values to run. Worker; cheap, no feature is computed here. Required.

    Called again with more in ``context`` after a probe was answered or a review asked for a retry.
    """


@hookspec(firstresult=True)
def extract_features(model: FrontendModel, clip: Clip, spans: Sequence[AudioSpan]) -> Sequence[Feature]:
    """Features of ``spans``, one each, in order. Worker; sees the clip, as some normalise over all of it. Required."""


@hookspec(firstresult=True)
def decode_tokens(
    model: FrontendModel, tokens: Tokens, state: Any, final: bool, times: tuple[int, ...]
) -> tuple[Piece, Any]:
    """Text and marks of the next output tokens, and the state to pass next time. Loop. Required.

    ``tokens`` is one token, or more where the text so far ended inside a character: a piece whose last item is a
    string that ends in U+FFFD is put aside, and its tokens are offered again together with the next one from the
    same ``state``; given up after four tokens that complete no character. ``state`` is None at the clip's start and
    must be a value: the call may be repeated. ``given`` tokens pass here too, the stop token does not. Once, at the
    end, ``final`` is True and ``tokens`` is what was still put aside or empty. ``times`` are the tokens'
    milliseconds after the clip's start, of a model that recognises with times, else empty.

    The strings of all pieces in a row are the text, marks change nothing in it: where two segments are two sentences,
    the space between them is the plugin's to give.
    """


@hookspec(firstresult=True)
def review_output(
    model: FrontendModel,
    output: ClipOutput,
    clip: Clip,
    prepared: PreparedClip,
    request: TranscriptionRequest,
    context: ClipContext,
) -> Verdict:
    """Accept the output, ask for a retry or for more to go by, or say nobody spoke. Worker. Default: ``Accept()``.

    Called before each commit on what is not committed (see ``streaming_policy``), in the end on what is left.
    """


@hookspec(firstresult=True)
def prepare_alignment(model: FrontendModel, output: ClipOutput, prepared: PreparedClip) -> Alignment | None:
    """What ``align_words`` has to see of the decoder's cross attention. Worker. Default: None, it needs none.

    Called once a clip is done and has text, if the caller wants word times. ``output`` is all of it, what was committed
    before included.
    """


@hookspec(firstresult=True)
def align_words(
    model: FrontendModel, output: ClipOutput, clip: Clip, prepared: PreparedClip, attention: Any
) -> Sequence[Word]:
    """Words with times in milliseconds after the clip's start. Worker. Required of a model with word times.

    ``attention`` is None, or answers ``prepare_alignment``: float32 of shape [heads, prompt positions, encoder rows],
    scaled products of queries and keys before the softmax. The core keeps times in the clip and in order.
    """


# Weights


@hookspec(firstresult=True)
def load_weights(model: FrontendModel, parts: frozenset[str], device: str, dtype: str) -> Weights:
    """Load the named ``parts``, of {"encoder", "decoder"}, and nothing else. Start-up. Required.

    A model that does not generate is always asked for its encoder alone.

    ``weights.decoder`` is one of the decoder adapters the engine ships, wrapped around the plugin's module.

    Raises:
        CheckpointError: files missing, damaged, or not what their header says.
    """


@hookspec(firstresult=True)
def encode_batch(
    model: LoadedModel, features: Sequence[Feature]
) -> Sequence[Any] | Generator[None, None, Sequence[Any]]:
    """One tensor of shape [span.tokens, width] per feature, equal whoever shares the batch. Compute.

    Width and dtype are the same for all rows of a model. The core copies the rows to host memory, keeps them as
    ``encoder_policy`` says, and hands them to all whose features are equal; so raise rather than return rows that
    should not be kept. An item whose rows are not as promised fails alone, a call that raises fails its batch.

    A generator may yield between parts of its work, such as layers, and returns the rows: a part of less than 50 ms is
    what a short request waits for, else it is the whole call. It is suspended wherever it yields, for seconds perhaps
    and while other work is done on the same thread, so it must not hold there what others share (a lock, or a setting
    of the thread such as torch's autocast); and it may be closed there.
    """


@hookspec(firstresult=True)
def recognize_batch(model: LoadedModel, features: Sequence[Feature]) -> Sequence[Recognized]:
    """Tokens of each feature without generating (CTC), for models whose weights have no decoder. Compute."""


# Beside models: for distributions that register none


@hookspec
def postprocess_transcript(transcript: Transcript, request: TranscriptionRequest) -> Transcript | None:
    """Change uncommitted text, or return None to leave it. *Provisional.*"""
