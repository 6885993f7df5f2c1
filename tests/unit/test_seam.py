"""Two clips that both heard what is beside a cut: it is told once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asr_core.longform import join_texts, seam


def joined(left: str, right: str, left_share: float = 0.5, right_share: float = 0.5) -> str:
    told, goes_on = seam(left, right, left_share, right_share)
    return join_texts((left[:told], right[goes_on:]))


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        ("the fall of the house of Usher", "the house of Usher was dark", "the fall of the house of Usher was dark"),
        # What is heard in half at the ends is of the other.
        ("to the light house on the hi", "ight house on the hill we went", "to the light house on the hill we went"),
        # Marks and capitals do not count, and go with their word.
        ("He came. Twice I thought, that I", "I thought that I was", "He came. Twice I thought, that I was"),
        ('she said "well-known', 'Said "well-known" things', 'she said "well-known things'),
        ("今天天气很好。我们去公园。然", "们去公园。然后回家。", "今天天气很好。我们去公园。然后回家。"),
        ("我用 Python 写", "Python 写代码", "我用 Python 写代码"),
        # Nothing in common, or by chance: rather twice than not at all.
        ("one two three for", "too tree four five", "one two three for too tree four five"),
        ("he left the old house", "and here was the sea", "he left the old house and here was the sea"),
        # A sign alone is kept, and vowel signs tell words apart.
        ("we got 50 % x", "got 50 % of it", "we got 50 % of it"),
        ("बच्चा का", "की किताब", "बच्चा का की किताब"),
        ("and so it is", "", "and so it is"),
        ("", "and so it is", "and so it is"),
        ("", "", ""),
    ],
)
def test_what_both_say_is_told_once(left: str, right: str, text: str) -> None:
    assert joined(left, right) == text


def test_of_equal_runs_the_one_at_the_cut_counts() -> None:
    assert joined("the end of the day and the end of", "the end of the night and the end of it", 0.3, 0.3) == (
        "the end of the day and the end of the night and the end of it"
    )


words = st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=12, max_size=40, unique=True)


@given(words, st.data())
def test_where_nothing_repeats_every_word_is_told_once(said: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(1, len(said) - 4))
    end = data.draw(st.integers(start + 3, len(said) - 1))
    left, right = said[:end], said[start:]
    both = end - start
    # The ends are misheard.
    heard = " ".join([*left[:-1], "LOST"]), " ".join(["GONE", *right[1:]])
    assert joined(*heard, both / len(left), both / len(right)) == " ".join(said)
