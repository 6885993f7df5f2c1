"""``[start][Sxx]text[end]``, whole and damaged, cut anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, pairwise

import pytest
from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st

from asr_core.longform import join_texts
from asr_core.runtime.fold import Folded, fold
from asr_core.runtime.text import Fragment
from asr_core.types import End, Mark, Piece, Speaker, Start
from asr_moss.grammar import Output

MARK = re.compile(r"\[(S\d{1,4}|(\d\d?:){1,2}\d{1,5}(\.\d{1,3})?|\d{1,5}\.\d{1,3})\]", re.ASCII)
"""The grammar once more, for texts that are whole: seconds with a fraction, or minutes or hours before them."""

DURATION_MS = 100_000


@frozen
class Said:
    start: int
    end: int
    speaker: str | None
    text: str


def read(parts: Sequence[str]) -> list[Piece]:
    """What each part adds, and what the end does."""
    output, pieces = Output(), []
    for number, part in enumerate([*parts, ""]):
        piece, output = output.read(part, final=number == len(parts))
        assert len(output.bracket) <= 16
        pieces.append(piece)
    return pieces


def folded(parts: Sequence[str]) -> Folded:
    return fold([Fragment((), (), piece) for piece in read(parts)], DURATION_MS)


def segments(parts: Sequence[str]) -> list[Said]:
    return [Said(one.start_ms, one.end_ms, one.speaker, one.text) for one in folded(parts).segments]


def merged(pieces: Sequence[Piece]) -> list[str | Mark]:
    """All items in a row, neighbouring strings as one."""
    items = [item for piece in pieces for item in piece]
    runs = groupby(items, lambda item: isinstance(item, str))
    return [item for strings, run in runs for item in (["".join(map(str, run))] if strings else run)]


def cut(text: str, places: Sequence[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[first:last] for first, last in pairwise(bounds)]


# Marks


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("0.00", 0),
        ("7.56", 7560),
        ("8.12", 8120),
        ("8.1", 8100),
        ("8.123", 8123),
        ("0.005", 5),
        ("5399.99", 5_399_990),
        ("1:23", 83_000),
        ("01:23.5", 83_500),
        ("01:02:03", 3_723_000),
        ("1:02:03.04", 3_723_040),
        ("90:00", 5_400_000),
    ],
)
def test_times_are_read_from_their_digits(written: str, ms: int) -> None:
    assert merged(read([f"[{written}][S01]a[{written}]"])) == [Start(ms), Speaker("S01"), "a", End(ms)]


@pytest.mark.parametrize("label", ["S01", "S02", "S10", "S123", "S1"])
def test_a_speaker_keeps_its_label(label: str) -> None:
    assert merged(read([f"[{label}]"])) == [Speaker(label)]


@pytest.mark.parametrize(
    "text",
    [
        "[laughter]", "[1]", "[2024]", "[]", "[", "]", "[[", "[S]", "[Sxx]", "[s01]", "[S01", "[0.5", "[.5]", "[5.]",
        "[1:2:3:4]", "[ 1.0 ]", "[1.0s]", "[1,5]", "[S01 S02]", "[S12345]", "[1.2345]", "[٣.٣]", "[S٣]", "[1.0\n]",
        "a [b [c] d] e", "arr[0] = [1, 2]", "[" * 40, "[0.0" * 10, "[" + "1" * 60, "[" + ":" * 60,
    ],
)  # fmt: skip
def test_other_brackets_are_what_was_said(text: str) -> None:
    for parts in ([text], list(text)):
        assert merged(read(parts)) == [text]
    assert segments([f"[1.00][S01]{text}[2.00]"]) == [Said(1000, 2000, "S01", text)]


def test_one_string_can_end_a_mark_and_begin_the_next() -> None:
    pieces = read(["[0.00", "][S01", "]a[1.0", "0][1.0", "0][S02]b"])
    assert pieces[:5] == [(), (Start(0),), (Speaker("S01"), "a"), (End(1000),), (Start(1000), Speaker("S02"), " b")]


def test_a_bracket_waits_no_longer_than_a_mark_can_be() -> None:
    output = Output()
    for number, character in enumerate("[01:02:00003.0000"):
        piece, output = output.read(character)
        assert piece == () if number < 16 else ("[01:02:00003.0000",)


# Whole and damaged outputs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[0.50][S01]one[1.00][1.50][S02]two[2.00]", [(500, 1000, "S01", "one"), (1500, 2000, "S02", "two")]),
        ("[0.50] [S01] one [1.00]\n[1.50]  [S02] two[2.00]\n", [(500, 1000, "S01", "one"), (1500, 2000, "S02", "two")]),
        # no end: the next start ends it
        ("[0.50][S01]one[1.50][S02]two[2.00]", [(500, 1500, "S01", "one"), (1500, 2000, "S02", "two")]),
        ("[0.50][S01]one", [(500, 100_000, "S01", "one")]),
        # no start: the end before it starts it
        ("[S01]one[1.00][S02]two[2.00]", [(0, 1000, "S01", "one"), (1000, 2000, "S02", "two")]),
        ("one[1.00]", [(0, 1000, None, "one")]),
        # no speaker: the one before goes on
        ("[0.50][S01]one[1.00][1.50]two[2.00]", [(500, 1000, "S01", "one"), (1500, 2000, "S01", "two")]),
        ("[0.50]one[1.00][1.50][S02]two[2.00]", [(500, 1000, None, "one"), (1500, 2000, "S02", "two")]),
        # text outside
        ("Well: [0.50][S01]one[1.00]", [(0, 500, None, "Well:"), (500, 1000, "S01", "one")]),
        ("[0.50][S01]one[1.00]er[1.50][S02]two[2.00]",
         [(500, 1000, "S01", "one"), (1000, 1500, "S01", "er"), (1500, 2000, "S02", "two")]),
        ("[0.50][S01]one[1.00] bye", [(500, 1000, "S01", "one"), (1000, 100_000, "S01", "bye")]),
        # marks that come twice, or about nothing
        ("[0.50][0.60][S01][S02]one[1.00]", [(600, 1000, "S02", "one")]),
        ("[0.50][S01][1.00][1.50][S02]two[2.00]", [(1500, 2000, "S02", "two")]),
        ("[0.50][S01][1.00]one[2.00]", [(1000, 2000, "S01", "one")]),
        # the speaker before the time
        ("[S01][0.50]one[1.00][S02][1.50]two[2.00]", [(500, 1000, "S01", "one"), (1500, 2000, "S02", "two")]),
        ("[S01][0.50]one[S02][1.50]two[2.00]", [(500, 1500, "S01", "one"), (1500, 2000, "S02", "two")]),
        # times out of range or order, which the core puts right
        ("[2.00][S01]one[1.00]", [(2000, 2000, "S01", "one")]),
        ("[3.00][S01]one[4.00][1.00][S01]two[2.00]", [(3000, 4000, "S01", "one"), (3000, 3000, "S01", "two")]),
        ("[0.50][S01]one[99:00]", [(500, 100_000, "S01", "one")]),
        # cut short
        ("[0.50][S01]one[1.0", [(500, 100_000, "S01", "one[1.0")]),
        ("[0.50][S01]one[1.00][1.5", [(500, 1000, "S01", "one"), (1000, 100_000, "S01", "[1.5")]),
        ("[0.50][S01]one[1.00][", [(500, 1000, "S01", "one"), (1000, 100_000, "S01", "[")]),
        ("[0.50][S0", [(500, 100_000, None, "[S0")]),
        # marks within brackets
        ("[[0.50][S01]one]", [(0, 500, None, "["), (500, 100_000, "S01", "one]")]),
        ("just [some] text", [(0, 100_000, None, "just [some] text")]),
        (" \n", []),
        ("", []),
    ],
)  # fmt: skip
def test_segments(text: str, expected: list[tuple[int, int, str | None, str]]) -> None:
    for parts in ([text], list(text)):
        assert segments(parts) == [Said(*one) for one in expected]
        assert folded(parts).text == join_texts(one[3] for one in expected)


def test_a_speaker_without_any_time_begins_a_segment() -> None:
    for parts in (["[0.50][S01]one[S02]two[2.00]"], list("[0.50][S01]one [S02]two[2.00]")):
        assert [(one.speaker, one.text) for one in segments(parts)] == [("S01", "one"), ("S02", "two")]
        assert folded(parts).text == "one two"


# Any output


def forms(ms: int) -> st.SearchStrategy[str]:
    seconds, fraction = divmod(ms, 1000)
    minutes, rest = divmod(seconds, 60)
    return st.sampled_from(
        [f"{seconds}.{fraction:03}", f"{minutes}:{rest:02}.{fraction:03}", f"00:{minutes:02}:{rest:02}.{fraction:03}"]
    )


WORDS = st.text("ab S0.5:[]()看见한국ไทย,!🙂\n", min_size=1, max_size=12).filter(
    lambda text: text == text.strip() and not MARK.search(text)
)


@st.composite
def dialogues(draw: st.DrawFn) -> tuple[str, list[Said]]:
    bounds = sorted(draw(st.lists(st.integers(0, DURATION_MS), max_size=12)))
    said = [
        Said(start, end, f"S{draw(st.integers(1, 20)):02}", draw(WORDS))
        for start, end in zip(bounds[::2], bounds[1::2], strict=False)
    ]
    blank = st.sampled_from(["", "", " ", "\n"])
    parts = [
        f"[{draw(forms(one.start))}]{draw(blank)}[{one.speaker}]{draw(blank)}{one.text}{draw(blank)}[{draw(forms(one.end))}]"
        for one in said
    ]
    return draw(blank).join(parts), said


@given(dialogues(), st.lists(st.integers(0, 1000), max_size=30))
def test_what_is_written_is_read(dialogue: tuple[str, list[Said]], places: list[int]) -> None:
    written, said = dialogue
    parts = cut(written, places)
    assert segments(parts) == said
    assert folded(parts).text == join_texts(one.text for one in said)


GARBAGE = st.one_of(
    st.text("[]S01.: a看\n\ufffd"),
    st.lists(st.sampled_from(["[0.50]", "[S01]", "[1:02]", "[", "]", " ", "a", "看", "[12", "S", ".5]", "[x]"])).map(
        "".join
    ),
    st.text(),
)


@given(GARBAGE, st.lists(st.integers(0, 1000), max_size=30))
@example("[[S01]", [1, 2])
@example("a[0.50", [3])
def test_nothing_is_lost_wherever_it_is_cut(text: str, places: list[int]) -> None:
    whole, parts = merged(read([text])), merged(read(cut(text, places)))
    assert parts == whole
    said = "".join(item for item in parts if isinstance(item, str))
    assert "".join(said.split()) == "".join(MARK.sub("", text).split())
    assert sum(not isinstance(item, str) for item in parts) == len(list(MARK.finditer(text)))


@given(GARBAGE)
def test_text_without_marks_is_untouched(text: str) -> None:
    plain = MARK.sub("", text)
    if not MARK.search(plain):
        assert folded(list(plain)).text == plain.strip()


@given(GARBAGE)
def test_segments_and_text_agree(text: str) -> None:
    found = folded([text])
    assert join_texts(one.text for one in found.segments) == found.text
