"""What is a loop and what people do say, in any script, and where a loop is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asr_core.runtime.loops import loop_start

REFRAIN = "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream. "


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no no no no",
        "No, no, no, no, no, no, no, no, no!",
        "ha ha ha ha ha ha ha ha ha ha",
        "对对对对对对对对",
        REFRAIN * 2,
        "We shall overcome some day. " * 4,
        "na na na na na na na na, hey hey hey, goodbye. " * 2,
        ", ".join(map(str, range(1, 200))),
        " ".join(f"Item {number} is on the list." for number in range(50)),
        "I am going home. " * 20 + "And there I stay until it is over.",
        "zero zero zero seven",
    ],
)
def test_what_people_say_is_no_loop(text: str) -> None:
    assert loop_start(text) is None


@pytest.mark.parametrize(
    ("before", "unit", "count"),
    [
        ("", "ha", 200),
        ("So he laughed: ", "ha ", 200),
        ("I went there. ", "I am going home. ", 6),
        ("", "Thank you for watching! ", 30),
        ("我们走吧。", "谢谢大家。", 8),
        ("我们走吧", "字幕由志愿者提供", 6),
        ("", "안녕하세요 ", 10),
        ("", "สวัสดีครับ", 10),
        ("Und dann: ", "Straße, ", 20),
        ("", "He was not ill-disposed, unless to be cold-hearted is to be so; he was, in general, respected. ", 6),
        ("At last ", "0", 100),
    ],
)
def test_one_of_the_repeats_stays(before: str, unit: str, count: int) -> None:
    text = before + unit * count
    start = loop_start(text)
    assert start is not None
    assert text[:start] == before + unit
    assert loop_start(text[: -len(unit) // 2]) == start


def test_case_and_punctuation_do_not_matter() -> None:
    text = "I am going home. I am going home, i am going home; I am going home - I AM GOING HOME! I am going"
    assert loop_start(text) == len("I am going home. ")


def test_a_loop_that_begins_with_the_end_of_what_came_before_is_cut_at_a_sentence() -> None:
    text = "I went home. " + "I am going home. " * 6
    assert text[: loop_start(text)] == "I went home. I am going home. "


@given(st.text(max_size=300), st.text(min_size=1, max_size=20), st.integers(0, 60))
def test_a_cut_is_inside_and_keeps_what_was_repeated(before: str, unit: str, count: int) -> None:
    text = before + unit * count
    start = loop_start(text)
    assert start is None or 0 < start < len(text)
