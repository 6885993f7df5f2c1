"""Marks to segments: missing bounds are found, all lie in the clip, and text never changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asr_core.runtime.fold import Before, fold, until, without
from asr_core.runtime.text import Fragment
from asr_core.types import End, Language, Mark, Speaker, Start


def fragments(*items: str | Mark) -> list[Fragment]:
    return [Fragment((number,), (-1.0,), (item,)) for number, item in enumerate(items)]


def bounds(*items: str | Mark, duration: int = 10_000) -> list[tuple[int, int, str]]:
    return [(one.start_ms, one.end_ms, one.text) for one in fold(fragments(*items), duration).segments]


def test_marked_segments_keep_their_bounds() -> None:
    assert bounds(Start(0), " a", End(500), Start(700), " b", End(900)) == [(0, 500, "a"), (700, 900, "b")]


def test_text_without_marks_spans_the_clip() -> None:
    assert bounds("hello") == [(0, 10_000, "hello")]


def test_a_missing_end_is_the_next_start() -> None:
    assert bounds(Start(100), "a", Start(400), "b", End(900)) == [(100, 400, "a"), (400, 900, "b")]


def test_a_missing_start_is_the_last_end() -> None:
    assert bounds(Start(100), "a", End(300), "b", End(900)) == [(100, 300, "a"), (300, 900, "b")]


def test_missing_ends_are_the_next_bound_that_is_known() -> None:
    assert bounds(Speaker("A"), Start(100), "a", Speaker("B"), "b", End(900), Start(950), "c", End(990)) == [
        (100, 900, "a"),
        (900, 900, "b"),
        (950, 990, "c"),
    ]
    assert bounds(Start(100), "a", Start(300), " ", End(400), Start(500), "b", End(900))[0] == (100, 300, "a")


def test_a_missing_last_end_is_the_end_of_the_clip() -> None:
    assert bounds(Start(100), "a") == [(100, 10_000, "a")]


def test_bounds_outside_the_clip_are_clamped() -> None:
    assert bounds(Start(100), "a", End(4809), duration=4601) == [(100, 4601, "a")]


def test_times_outside_the_clip_are_told_but_for_a_frame() -> None:
    folded = fold(fragments(Start(-300), "a", End(1090), Start(1200), "b", End(5000)), 1000)
    assert folded.outside == (-300, 1200, 5000)


def test_which_bounds_are_the_models_is_told() -> None:
    folded = fold(fragments(Start(0), "a", Start(400), "b", End(900), Start(950), " ", End(960), "c"), 1000)
    assert folded.marked == ((True, False), (True, True), (False, False))
    assert [segment.text for segment in folded.timed] == ["b"]


def test_a_segment_is_taken_out_and_the_others_keep_their_bounds() -> None:
    items = fragments(Start(0), "a", End(100), Start(200), "b", End(300), Start(400), "c")
    second = fold(items, 1000).segments[1]
    folded = fold(without(items, 1000, Before(), [second]), 1000)
    assert [(one.start_ms, one.end_ms, one.text) for one in folded.segments] == [(0, 100, "a"), (400, 1000, "c")]


def test_what_is_cut_ends_inside_a_string_and_keeps_the_marks_before() -> None:
    items = fragments(Start(0), "one ", End(100), Start(200), "two three", End(300))
    assert bounds(*(item for fragment in until(items, 7) for item in fragment.piece)) == [
        (0, 100, "one"),
        (200, 10_000, "two"),
    ]
    assert [fragment.piece for fragment in until(items, 4)][:4] == [(Start(0),), ("one ",), (End(100),), (Start(200),)]


def test_a_segment_without_text_is_dropped() -> None:
    assert bounds(Start(0), " ", End(500), Start(700), "b", End(900)) == [(700, 900, "b")]


def test_speakers_part_segments() -> None:
    folded = fold(fragments(Speaker("A"), Start(0), "hi", End(100), Speaker("B"), Start(100), "ho", End(200)), 200)
    assert [(one.speaker, one.text) for one in folded.segments] == [("A", "hi"), ("B", "ho")]


def test_languages_are_told_once_in_order() -> None:
    assert fold(fragments(Language("en"), "a", Language("de"), "b", Language("en")), 10).languages == ("en", "de")


def test_tokens_stay_with_their_segment() -> None:
    first, second = fold(fragments(Start(0), "a", End(5), Start(5), "b", End(9)), 10).segments
    assert (first.tokens, second.tokens) == ((0, 1, 2), (3, 4, 5))


marks = st.one_of(
    st.builds(Start, st.integers(-100, 2000)),
    st.builds(End, st.integers(-100, 2000)),
    st.builds(Speaker, st.sampled_from("AB")),
    st.text(),
)


@given(st.lists(marks), st.integers(0, 1000))
def test_any_marks_give_ordered_segments_and_the_same_text(items: list[str | Mark], duration: int) -> None:
    folded = fold(fragments(*items), duration)
    assert folded.text == "".join(item for item in items if isinstance(item, str)).strip()
    starts = [segment.start_ms for segment in folded.segments]
    assert starts == sorted(starts)
    assert all(0 <= one.start_ms <= one.end_ms <= duration and one.text for one in folded.segments)
