"""When each word of a clip was said, by the plugin's own alignment or by an aligner that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from asr_core.engines.protocol import Finished
from asr_core.errors import AsrError, EngineError, PluginError
from asr_core.loading import ServedModel
from asr_core.runtime.requests import Encoded, alignment_request
from asr_core.services import Aligner
from asr_core.types import Alignment, Clip, ClipOutput, PreparedClip, Word


async def find_words(
    served: ServedModel, clip: Clip, output: ClipOutput, prepared: PreparedClip, encoded: Encoded, caller: str
) -> tuple[Word, ...]:
    """The words of ``output`` as the plugin times them.

    Raises:
        PluginError: a hook failed.
        EngineError: the aligning pass failed.
    """
    hooks, model = served.hooks, served.model
    alignment = await asyncio.to_thread(hooks.prepare_alignment, model, output, prepared)
    attention = None if alignment is None else await _attend(served, prepared, alignment, encoded, caller)
    return tuple(await asyncio.to_thread(hooks.align_words, model, output, clip, prepared, attention))


async def align_text(
    served: ServedModel, aligner: Aligner, clip: Clip, text: str, language: str | None
) -> tuple[Word, ...]:
    """The words of ``text`` as the aligner times them.

    Raises:
        AsrError: the aligner refused; as PluginError, it failed.
    """
    try:
        words = tuple(await asyncio.wrap_future(served.compute.submit(aligner.align, clip, text, language)))
    except AsrError:
        raise
    except Exception as error:
        raise PluginError(f"aligner {served.aligner_name!r} raised {type(error).__name__}: {error}") from error
    if strange := [type(word).__name__ for word in words if not isinstance(word, Word)]:
        raise PluginError(f"aligner {served.aligner_name!r} answered with a {strange[0]}, which is no Word")
    return words


def keep_in_order(words: Iterable[Word], end_ms: int) -> tuple[Word, ...]:
    """Words without text dropped, and 0 <= start <= end <= ``end_ms``, none starting before the one before it ends."""
    kept: list[Word] = []
    earliest = 0
    for word in words:
        start = min(max(word.start_ms, earliest), end_ms)
        earliest = min(max(word.end_ms, start), end_ms)
        if text := word.text.strip():
            kept.append(Word(start, earliest, text))
    return tuple(kept)


async def _attend(
    served: ServedModel, prepared: PreparedClip, alignment: Alignment, encoded: Encoded, caller: str
) -> object:
    if served.engine is None:
        raise PluginError(f"{served.hooks.owner}: a model without a decoder has no attention to align by")
    request = alignment_request(prepared, alignment, encoded, caller)
    try:
        async for item in served.engine.generate(request):
            if not isinstance(item, Finished) and item.attention is not None:
                return item.attention
    finally:
        served.engine.abort(request.id)
    raise EngineError("the engine ended an aligning pass without an answer")
