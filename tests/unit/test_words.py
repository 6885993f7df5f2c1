"""Words of a clip: what the plugin is asked and shown, and times that are kept in the clip and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from attrs import define, field

from asr_core.engines.protocol import EncodedRows, Finished, GeneratedToken, GenerationRequest
from asr_core.errors import EngineError, PluginError
from asr_core.types import Alignment, AudioSpan, ClipOutput, PreparedClip, Waveform, Word
from asr_core.words import find_words, keep_in_order

CLIP = Waveform(np.ones(16_000, np.float32), 16_000, b"").clip()
SPAN = AudioSpan(0, 16_000, tokens=3)
PREPARED = PreparedClip((SPAN,), prompt=((1, 2),), cross=0, stop=frozenset({0}), budget=5)
ENCODED = {SPAN: EncodedRows(torch.zeros(3, 2), b"key")}
OUTPUT = ClipOutput((7, 8), (), (), "seven eight", (), (), "stop")
WORDS = [Word(0, 400, "seven"), Word(400, 900, "eight")]
SEEN = np.zeros((2, 4, 3), np.float32)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ()),
        (WORDS, tuple(WORDS)),
        ([Word(-50, 100, "a"), Word(900, 1500, "b")], (Word(0, 100, "a"), Word(900, 1000, "b"))),
        ([Word(0, 500, "a"), Word(300, 700, "b")], (Word(0, 500, "a"), Word(500, 700, "b"))),
        ([Word(600, 700, "a"), Word(100, 200, "b")], (Word(600, 700, "a"), Word(700, 700, "b"))),
        ([Word(300, 200, "a")], (Word(300, 300, "a"),)),
        ([Word(5000, 6000, "a")], (Word(1000, 1000, "a"),)),
        ([Word(0, 100, " "), Word(100, 200, " a "), Word(200, 300, "")], (Word(100, 200, "a"),)),
    ],
    ids=["none", "as they are", "outside", "overlap", "backwards", "end before start", "behind", "without text"],
)
def test_words_are_kept_in_the_clip_and_in_order(words: list[Word], expected: tuple[Word, ...]) -> None:
    assert keep_in_order(words, 1000) == expected


@define
class Hooks:
    """A plugin that asks for what it is told to ask for, and keeps what it was shown."""

    wants: Alignment | None
    owner: str = "plug"
    shown: list[Any] = field(factory=list)

    def prepare_alignment(self, model: object, output: ClipOutput, prepared: PreparedClip) -> Alignment | None:
        return self.wants

    def align_words(self, *shown: object) -> Sequence[Word]:
        self.shown.append(shown)
        return WORDS


@define
class Engine:
    """Says its items, whatever it is asked."""

    items: list[Any]
    asked: list[GenerationRequest] = field(factory=list)
    aborted: list[str] = field(factory=list)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Any, None]:
        self.asked.append(request)
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)


def find(hooks: Hooks, engine: Engine | None) -> tuple[Word, ...]:
    served: Any = SimpleNamespace(hooks=hooks, model="model", engine=engine)
    return asyncio.run(find_words(served, CLIP, OUTPUT, PREPARED, ENCODED, "caller"))


def test_the_plugin_is_shown_the_attention_it_asked_for() -> None:
    hooks = Hooks(Alignment((1, 2, 7, 8), ((3, 1), (4, 2))))
    engine = Engine([GeneratedToken(5, -0.1, (), SEEN), Finished("length")])
    assert find(hooks, engine) == tuple(WORDS)
    ((*given, attention),) = hooks.shown
    assert given == ["model", OUTPUT, CLIP, PREPARED]
    assert attention is SEEN
    (request,) = engine.asked
    assert (request.prompt, request.cross, request.attend) == (((1, 2, 7, 8),), ENCODED[SPAN], ((3, 1), (4, 2)))
    assert (request.budget, request.given, request.rules, request.caller) == (1, (), (), "caller")
    assert engine.aborted == [request.id]


def test_a_plugin_that_asks_for_nothing_is_shown_nothing() -> None:
    hooks, engine = Hooks(None), Engine([])
    assert find(hooks, engine) == tuple(WORDS)
    assert hooks.shown[0][-1] is None
    assert engine.asked == []
    assert find(Hooks(None), None) == tuple(WORDS)


def test_attention_without_a_decoder_is_the_plugins_fault() -> None:
    with pytest.raises(PluginError, match="plug: a model without a decoder"):
        find(Hooks(Alignment((1,), ((0, 0),))), None)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([Finished("length")], "without an answer"),
        ([GeneratedToken(5, -0.1), Finished("length")], "without an answer"),
        ([EngineError("broke")], "broke"),
    ],
)
def test_an_engine_that_shows_none_has_failed(items: list[Any], message: str) -> None:
    hooks, engine = Hooks(Alignment((1,), ((0, 0),))), Engine(items)
    with pytest.raises(EngineError, match=message):
        find(hooks, engine)
    assert hooks.shown == []
    assert engine.aborted == [engine.asked[0].id]
