"""Whatever a model says, and however it is split, marked, reviewed and resumed: the deltas add up to the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_core.longform import join_texts

PAIRS, RUN, STOP = 256, 4, 256 + 65536
RETRY, NOBODY, START, END = STOP + 1, STOP + 2, STOP + 5, STOP + 105
"""As tests/stream/plugins/scripted.py has them."""

Tokens = list[int]

# Every example is a request to a real engine.
few = settings(max_examples=30, deadline=None)

words = st.one_of(
    st.text(max_size=4), st.sampled_from([" ", "  ", "\n", "\u3000", "\x85", "你好", "🙂", "한국", " ไทย"])
)
marks = st.one_of(st.integers(START, START + 99), st.integers(END, END + 99))


def flat(runs: list[Tokens]) -> Tokens:
    return [token for run in runs for token in run]


@st.composite
def split(draw: st.DrawFn, raw: bytes) -> Tokens:
    """``raw`` in tokens of one or two bytes."""
    tokens: Tokens = []
    while raw:
        count = draw(st.integers(1, min(2, len(raw))))
        tokens.append(raw[0] if count == 1 else PAIRS + 256 * raw[0] + raw[1])
        raw = raw[count:]
    return tokens


said = words.flatmap(lambda text: split(text.encode()))
marked = st.lists(st.one_of(said, marks.map(lambda mark: [mark])), max_size=8).map(flat)
torn = st.binary(max_size=20).flatmap(split).flatmap(lambda tokens: st.permutations([*tokens, START, END]))


def runs(tokens: Tokens) -> Iterator[str]:
    """What stands between marks; a character that a mark tears is torn."""
    for is_text, run in groupby(tokens, lambda token: token < STOP):
        if is_text:
            raw = b"".join(bytes([t]) if t < PAIRS else bytes(divmod(t - PAIRS, 256)) for t in run)
            yield raw.decode(errors="replace")


def text_of(tokens: Tokens) -> str:
    return "".join(runs(tokens))


@pytest.mark.parametrize("name", ["scripted-token", "scripted-segment", "scripted-clip", "scripted-flush"])
@given(tokens=marked)
@few
def test_text_in_any_split(play: Any, name: str, tokens: Tokens) -> None:
    _, transcript = play(name, [[tokens]])
    assert transcript.text == text_of(tokens).strip()


@pytest.mark.parametrize("name", ["scripted-token", "scripted-segment"])
@given(tokens=torn)
@few
def test_torn_characters_show_only_where_they_are_torn(play: Any, name: str, tokens: Tokens) -> None:
    deltas, _ = play(name, [[tokens]])
    whole = "\ufffd" not in text_of(tokens)
    assert ("".join(deltas) == text_of(tokens).strip()) if whole else any("\ufffd" in delta for delta in deltas)


ends = st.integers(END, END + 99)
segments = st.tuples(said, st.sampled_from([[], [], [], [RETRY], [NOBODY]]), ends).map(lambda s: [*s[0], *s[1], s[2]])
attempts = st.tuples(st.lists(segments, max_size=4), said).map(lambda attempt: [*attempt[0], attempt[1]])
clips = st.lists(st.lists(attempts, min_size=1, max_size=3), min_size=1, max_size=3)


def by_token(clip: list[list[Tokens]]) -> list[list[Tokens]]:
    return [[[token] for token in flat(attempt)] or [[]] for attempt in clip]


def is_run(pending: Tokens) -> bool:
    return len(pending) % RUN == 0 and not text_of(pending).endswith("\ufffd")


def is_segment(pending: Tokens) -> bool:
    return bool(text_of(pending).strip())


DUE: dict[str, Callable[[Tokens], bool]] = {
    "reviewed-token": is_run,
    "reviewed-segment": is_segment,
    "reviewed-clip": lambda pending: False,
}


def reviewed(clip: list[list[Tokens]], is_due: Callable[[Tokens], bool]) -> tuple[str, bool]:
    """What remains of a clip's attempts, and whether the review let the next clip follow."""
    committed = ""
    for number, attempt in enumerate(clip):
        pending: Tokens = []
        for last, piece in ((at == len(attempt) - 1, piece) for at, piece in enumerate(attempt)):
            pending += piece
            if not (last or is_due(pending)):
                continue
            if RETRY in pending and number + 1 < len(clip):
                break
            if NOBODY in pending:
                if last:
                    return committed, False
                continue
            committed, pending = committed + text_of(pending), []
            if last:
                return committed, True
    raise AssertionError("the last attempt is never tried again")


@pytest.mark.parametrize("name", DUE)
@given(script=clips)
@few
def test_reviews_and_resumes(play: Any, name: str, script: list[list[list[Tokens]]]) -> None:
    _, transcript = play(name, [[flat(attempt) for attempt in clip] for clip in script])
    texts: list[str] = []
    for clip in script:
        text, goes_on = reviewed(by_token(clip) if name == "reviewed-token" else clip, DUE[name])
        texts.append(text)
        if not goes_on:
            break
    assert transcript.text == join_texts(texts)
