"""From attention to words: the warping against OpenAI's and all paths, words of any text at times that can be."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whisper.timing import dtw_cpu

from asr_core.types import Alignment, Clip, ClipContext, ClipOutput, PreparedClip, TranscriptionRequest, Waveform, Word
from asr_whisper.alignment import entered, prepare_alignment, token_frames
from asr_whisper.frontend import BEGIN, Frontend, prepare_clip, prepare_frontend
from asr_whisper.words import align_words, join_punctuation, spell, split_on_spaces, spread

from .test_tokenizer import found, openais

SECOND = 16_000
OPENAI = openais(True)
EXAMPLES = settings(max_examples=60, deadline=None)  # the machine may be busy
ANSWER = ClipContext(probe_results={BEGIN: (-3.0,)})


def clip_of(seconds: float) -> Clip:
    """From the middle of some audio: times count from the clip's start."""
    return Waveform(np.ones(40 * SECOND, np.float32), SECOND, b"").clip(SECOND, SECOND + round(seconds * SECOND))


def prepared(frontend: Frontend, clip: Clip, **request: object) -> PreparedClip:
    asked = TranscriptionRequest(**{"language": "en", **request})  # type: ignore[arg-type]
    return prepare_clip(frontend, clip, asked, ANSWER)


def output_of(tokens: list[int]) -> ClipOutput:
    return ClipOutput(tuple(tokens), (), (), "", (), (), "stop")


@cache
def ready(name: str = "whisper-base") -> Frontend:
    return prepare_frontend(found(name))


def diagonal(alignment: Alignment, rows: int) -> np.ndarray:
    """Attention of a speaker who says one token every 100 ms."""
    products = np.zeros((len(alignment.heads), len(alignment.prompt), rows), np.float32)
    for token in range(len(alignment.prompt) - 4):
        products[:, token + 3, 5 * token : 5 * token + 5] = 9
    return products


def words_of(tokens: list[int], seconds: float = 10, seed: int | None = None, **request: object) -> list[Word]:
    frontend, clip = ready(), clip_of(seconds)
    clip_plan, said = prepared(frontend, clip, **request), output_of(tokens)
    alignment = prepare_alignment(frontend, said, clip_plan)
    if alignment is None:
        return align_words(frontend, said, clip, clip_plan, None)
    attention = diagonal(alignment, 1500)
    if seed is not None:
        shape = attention.shape
        attention = np.random.default_rng(seed).normal(scale=5, size=shape).astype(np.float32)
    return align_words(frontend, said, clip, clip_plan, attention)


# The path


@EXAMPLES
@given(rows=st.integers(1, 30), columns=st.integers(1, 60), seed=st.integers(0, 999))
def test_rows_are_entered_where_openais_path_enters_them(rows: int, columns: int, seed: int) -> None:
    costs = np.random.default_rng(seed).normal(size=(rows, columns))
    path_rows, path_columns = dtw_cpu(costs)
    expected = [int(path_columns[np.flatnonzero(path_rows == row)[0]]) for row in range(rows)]
    assert entered(costs).tolist() == expected


def test_the_path_is_the_cheapest_of_all() -> None:
    """Every path through a grid of 4 by 5, counted one by one."""

    def paths(row: int, column: int) -> list[list[tuple[int, int]]]:
        if (row, column) == (0, 0):
            return [[(0, 0)]]
        before = ((row - 1, column - 1), (row - 1, column), (row, column - 1))
        ways = [way for one in before if min(one) >= 0 for way in paths(*one)]
        return [[*way, (row, column)] for way in ways]

    for seed in range(20):
        costs = np.random.default_rng(seed).normal(size=(4, 5))
        best = min(paths(3, 4), key=lambda path: sum(costs[cell] for cell in path))
        first = dict(reversed(best))
        assert entered(costs).tolist() == [first[row] for row in range(4)]


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 50])
def test_few_frames_are_enough(frames: int) -> None:
    frontend, clip = ready(), clip_of(1)
    plan, said = prepared(frontend, clip), output_of(OPENAI.encode(" one two three"))
    alignment = prepare_alignment(frontend, said, plan)
    assert alignment is not None
    found_frames = token_frames(frontend, plan, diagonal(alignment, 1500), frames)
    assert len(found_frames) == 4
    assert found_frames.tolist() == sorted(found_frames)
    assert 0 <= found_frames[0] <= found_frames[-1] < frames


# The prompt


@pytest.mark.parametrize("times", [frozenset({"word"}), frozenset({"word", "segment"})])
@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_the_prompt_is_openais_without_timestamps(times: frozenset[str], task: str) -> None:
    frontend = ready()
    plan = prepared(frontend, clip_of(5), language="de", task=task, times=times, prompt="What came before.")
    text = OPENAI.encode(" Guten Tag. Wie geht's?")
    begin = OPENAI.timestamp_begin
    tokens = [begin, *text[:3], begin + 50, begin + 50, *text[3:], begin + 99]
    head = [OPENAI.sot, OPENAI.sot + 1 + 2, getattr(OPENAI, task), OPENAI.no_timestamps]
    alignment = prepare_alignment(frontend, output_of(tokens), plan)
    assert alignment == Alignment((*head, *text, OPENAI.eot), frontend.config.alignment_heads)


def test_an_english_only_model_is_told_neither_language_nor_task() -> None:
    frontend, english = ready("whisper-tiny.en"), openais(False)
    text = tuple(english.encode(" Hello there"))
    alignment = prepare_alignment(frontend, output_of([*text]), prepared(frontend, clip_of(5)))
    assert alignment is not None
    assert alignment.prompt == (english.sot, english.no_timestamps, *text, english.eot)


@pytest.mark.parametrize("tokens", [[], [OPENAI.timestamp_begin, OPENAI.timestamp_begin + 7]])
def test_without_text_nothing_is_asked_and_no_word_found(tokens: list[int]) -> None:
    assert prepare_alignment(ready(), output_of(tokens), prepared(ready(), clip_of(5))) is None
    assert words_of(tokens) == []


def test_a_full_context_is_aligned_but_for_its_end() -> None:
    """Generated without <|endoftext|>, the text leaves no room for the prompt that aligns it."""
    frontend, clip = ready(), clip_of(30)
    plan = prepared(frontend, clip, times=frozenset({"segment"}))
    tokens = OPENAI.encode(" a") * plan.budget
    alignment = prepare_alignment(frontend, output_of(tokens), plan)
    assert alignment is not None
    assert len(alignment.prompt) == 448
    words = align_words(frontend, output_of(tokens), clip, plan, diagonal(alignment, 1500))
    check_times(words, 30)
    assert len(words) == plan.budget == 445


# Words


def check_times(words: list[Word], seconds: float) -> None:
    bounds = [bound for word in words for bound in (word.start_ms, word.end_ms)]
    assert bounds == sorted(bounds)
    assert all(word.start_ms < word.end_ms for word in words)
    assert not bounds or (bounds[0] >= 0 and bounds[-1] <= 1000 * seconds)


def test_words_are_said_when_their_tokens_are() -> None:
    """One token every 100 ms, punctuation too: the comma is a pause."""
    tokens = OPENAI.encode(" Hello, brave world.")
    assert len(tokens) == 5
    assert words_of(tokens) == [Word(0, 100, "Hello,"), Word(200, 300, "brave"), Word(300, 400, "world.")]


def test_a_word_of_several_tokens_lasts_from_the_first_to_the_last() -> None:
    tokens = OPENAI.encode(" ill-disposed man")
    assert len(tokens) == 6
    assert words_of(tokens) == [Word(0, 500, "ill-disposed"), Word(500, 600, "man")]


@pytest.mark.parametrize(("text", "language"), [(" 玄", "ko"), ("天玄", "zh"), (" \U00012000 b", "en")])
def test_a_letter_of_several_tokens_begins_with_the_first(text: str, language: str) -> None:
    """Wherever a space before it went, into a token of its own or into that of the letter's first byte."""
    tokens = OPENAI.encode(text)
    words = words_of(tokens, language=language)
    assert "".join(word.text for word in words) == "".join(text.split())
    assert [word.start_ms for word in words][:1] == [0]
    assert words[-1].end_ms == 100 * len(tokens)
    assert all(one.end_ms == other.start_ms for one, other in itertools.pairwise(words))


def test_a_mark_before_a_word_is_not_heard() -> None:
    tokens = OPENAI.encode(" so (he) said")
    assert [OPENAI.decode([token]) for token in tokens] == [" so", " (", "he", ")", " said"]
    assert words_of(tokens) == [Word(0, 100, "so"), Word(200, 300, "(he)"), Word(400, 500, "said")]


def test_no_word_is_later_than_where_the_model_stopped_listening() -> None:
    """The second of two segments is open and empty: what lies behind 0.4 s is another clip's."""
    begin, text = OPENAI.timestamp_begin, OPENAI.encode(" one two three four five six seven")
    words = words_of([begin, *text, begin + 20, begin + 20], times=frozenset({"segment", "word"}))
    assert len(words) == 7
    check_times(words, 0.4)


@pytest.mark.parametrize(
    ("language", "task", "expected"),
    [
        ("ja", "transcribe", ["今日は", "「世界」。", "天", "気"]),
        ("ja", "translate", ["今日は「世界」。天気"]),
        ("ko", "transcribe", ["今日は「世界」。天気"]),
    ],
)
def test_who_writes_no_spaces_is_split_by_characters(language: str, task: str, expected: list[str]) -> None:
    """A translation is English, whatever is spoken."""
    words = words_of(OPENAI.encode("今日は「世界」。天気"), language=language, task=task)
    assert [word.text for word in words] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Hello, world.", ["Hello,", "world."]),
        (" twenty-five won't U.S. 3.5 1,000 $5 50%", ["twenty-five", "won't", "U.S.", "3.5", "1,000", "$5", "50%"]),
        (" 1,2,3,4,5", ["1,", "2,", "3,", "4,", "5"]),
        (" so 1-2-3-4-10. Go", ["so", "1-", "2-", "3-", "4-", "10.", "Go"]),
        (" ça va ? Oui !", ["ça", "va ?", "Oui !"]),
        (" - Who? - Me.", ["- Who?", "- Me."]),
        (" « Oui », dit-il", ["« Oui »,", "dit-il"]),
        (" ¿ Qué ?", ["¿ Qué ?"]),
        (" ... and so", ["... and", "so"]),
        (" the end (", ["the", "end ("]),
        ("...", ["..."]),
        (" ... - !", ["... - !"]),
        (" \u266a la \u266a", ["\u266a", "la", "\u266a"]),
        ("  two  spaces ", ["two", "spaces"]),
    ],
)
def test_punctuation_joins_a_word(text: str, expected: list[str]) -> None:
    bounds = [*join_punctuation(text, split_on_spaces(text)), len(text)]
    assert [text[begin:end].strip() for begin, end in itertools.pairwise(bounds)] == expected


@pytest.mark.parametrize(
    ("times", "end_ms", "expected"),
    [
        ([0, 100, 100, 300], 300, [0, 100, 100, 300]),
        ([0, 100, 100, 100, 100, 300], 300, [0, 100, 100, 120, 120, 300]),
        ([300, 300, 300, 300, 300, 300], 300, [240, 260, 260, 280, 280, 300]),
        ([0, 0, 0, 0, 0, 0], 300, [0, 20, 20, 40, 40, 60]),
        ([0, 0, 0, 0], 10, [0, 5, 5, 10]),
        ([40, 60, 500, 520], 100, [40, 60, 80, 100]),
        ([], 100, []),
    ],
    ids=["as it is", "one between", "at the end", "at the beginning", "no room", "beyond", "none"],
)
def test_a_word_without_length_gets_some_from_its_neighbours(
    times: list[int], end_ms: int, expected: list[int]
) -> None:
    assert spread(times, end_ms) == expected


@EXAMPLES
@given(
    text=st.text(
        st.sampled_from("ab dé 12 .,!?-'\"()「」、。¿¡«» \u266a%$ 今日はไก่ก์ 한국룰 \U0001f600 \n"),
        min_size=1,
        max_size=25,
    ),
    language=st.sampled_from(["en", "ja", "th", "ko", "zh"]),
    bytewise=st.booleans(),
    seconds=st.sampled_from([0.1, 0.4, 3.0, 30.0]),
    seed=st.integers(0, 99),
)
def test_words_are_the_text_at_times_that_can_be(
    text: str, language: str, bytewise: bool, seconds: float, seed: int
) -> None:
    cut = [OPENAI.encoding.encode_single_token(bytes([byte])) for byte in text.encode()]
    words = words_of(cut if bytewise else OPENAI.encode(text), seconds, seed, language=language)
    assert "".join("".join(word.text for word in words).split()) == "".join(text.split())
    check_times(words, seconds)


@EXAMPLES
@given(tokens=st.lists(st.integers(0, 50_256), min_size=1, max_size=40), seed=st.integers(0, 99))
def test_any_tokens_at_all_have_words(tokens: list[int], seed: int) -> None:
    """Broken characters included, which are nobody's words but part of the text."""
    text, starts = spell(ready(), tuple(tokens))
    assert starts == sorted(starts)
    assert (len(starts), starts[-1]) == (len(tokens) + 1, len(text))
    words = words_of(tokens, 30, seed)
    assert "".join("".join(word.text for word in words).split()) == "".join(text.split())
    check_times(words, 30)
