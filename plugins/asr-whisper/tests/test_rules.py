"""The grammar of timestamps against transformers' and OpenAI's own code."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, WhisperTimeStampLogitsProcessor
from whisper.decoding import ApplyTimestampRules, DecodingOptions

from asr_whisper.rules import LAST_INITIAL, TimestampRule

from .test_tokenizer import openais

OPENAI = openais(True)
BEGIN, EOT, VOCABULARY = OPENAI.timestamp_begin, OPENAI.eot, 51865
# What was said before counts for nothing, even if it ended in a timestamp.
PROMPT = (OPENAI.sot_prev, 11, BEGIN + 7, *OPENAI.sot_sequence)
RULE = TimestampRule(BEGIN, EOT)

WORDS = st.integers(0, EOT - 1)
TIMES = st.integers(BEGIN, VOCABULARY - 1)
LIFTS = st.sampled_from([-20.0, -4.0, 0.0, 4.0, 20.0])
SEEDS = st.integers(0, 2**16)
EXAMPLES = settings(max_examples=30, deadline=None)  # the machine may be busy


@st.composite
def grammatical(draw: st.DrawFn) -> list[int]:
    """Pairs of timestamps that never go back, with words between, broken off anywhere."""
    output: list[int] = []
    for number, time in enumerate(sorted(draw(st.lists(TIMES, min_size=1, max_size=7)))):
        output.append(time)
        if number % 2 == 0:
            output += draw(st.lists(WORDS, min_size=1, max_size=3))
    return output[: draw(st.integers(0, len(output)))]


OUTPUTS = grammatical() | st.lists(WORDS | TIMES, max_size=6) | st.lists(WORDS, max_size=3)

NAMED = {
    "nothing": [],
    "one timestamp": [BEGIN],
    "two timestamps": [BEGIN, BEGIN + 1],
    "a word after a timestamp": [BEGIN, 5],
    "a segment": [BEGIN, 5, BEGIN + 100],
    "a segment as long as the window": [BEGIN, 5, BEGIN + 1500],
    "a segment and the next one's start": [BEGIN, 5, BEGIN + 100, BEGIN + 100],
    "a word after a pair": [BEGIN, 5, BEGIN + 100, BEGIN + 100, 6],
    "going back": [BEGIN + 100, 5, BEGIN + 50],
    "one word": [5],
    "words only": [5, 6, 7],
    "words first": [5, BEGIN + 3],
    "words first, then a pair": [5, BEGIN + 3, BEGIN + 3],
}


def logits(seed: int, lift: float, rows: int = 1) -> torch.Tensor:
    """Random logits; ``lift`` is added to all timestamps, which otherwise rarely win."""
    scores = 3 * torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    scores[:, BEGIN:] += lift
    return scores


def ours(seen: list[list[int]], scores: torch.Tensor) -> torch.Tensor:
    return RULE.apply(seen, scores.clone())


def transformers(seen: list[list[int]], scores: torch.Tensor) -> torch.Tensor:
    config = GenerationConfig(
        no_timestamps_token_id=OPENAI.no_timestamps, eos_token_id=EOT, bos_token_id=EOT, max_initial_timestamp_index=50
    )
    processor = WhisperTimeStampLogitsProcessor(config, begin_index=len(PROMPT))
    masked: torch.Tensor = processor(torch.tensor([[*PROMPT, *output] for output in seen]), scores)
    return masked


def openai(seen: list[list[int]], scores: torch.Tensor) -> torch.Tensor:
    masked = scores.clone()
    tokens = torch.tensor([[*PROMPT, *output] for output in seen])
    ApplyTimestampRules(OPENAI, len(PROMPT), 50).apply(masked, tokens)
    return masked


@pytest.mark.parametrize("lift", [-20.0, 0.0, 20.0])
@pytest.mark.parametrize("output", NAMED.values(), ids=NAMED.keys())
def test_every_kind_of_output_is_masked_as_by_both_references(output: list[int], lift: float) -> None:
    scores = logits(1, lift)
    masked = ours([output], scores)
    assert torch.equal(masked, transformers([output], scores))
    assert torch.equal(masked, openai([output], scores))


@EXAMPLES
@given(output=OUTPUTS, seed=SEEDS, lift=LIFTS)
def test_any_output_is_masked_as_by_both_references(output: list[int], seed: int, lift: float) -> None:
    scores = logits(seed, lift)
    masked = ours([output], scores)
    assert torch.equal(masked, transformers([output], scores))
    assert torch.equal(masked, openai([output], scores))


@EXAMPLES
@given(st.data(), SEEDS, st.integers(0, 5), st.integers(2, 4))
def test_rows_of_equal_length_are_masked_as_by_both_references(
    data: st.DataObject, seed: int, length: int, rows: int
) -> None:
    outputs = st.lists(WORDS | TIMES, min_size=length, max_size=length)
    seen = data.draw(st.lists(outputs, min_size=rows, max_size=rows))
    scores = logits(seed, 0.0, rows)
    masked = ours(seen, scores)
    assert torch.equal(masked, transformers(seen, scores))
    assert torch.equal(masked, openai(seen, scores))


@EXAMPLES
@given(st.lists(OUTPUTS, min_size=1, max_size=4), SEEDS, LIFTS)
def test_a_row_does_not_see_its_company(seen: list[list[int]], seed: int, lift: float) -> None:
    scores = logits(seed, lift, len(seen))
    alone = torch.cat([ours([output], scores[[row]]) for row, output in enumerate(seen)])
    assert torch.equal(ours(seen, scores), alone)


def allowed(output: list[int], lift: float) -> set[int]:
    return set(torch.isfinite(ours([output], logits(1, lift))[0]).nonzero().flatten().tolist())


def test_the_first_token_is_a_time_within_the_first_second() -> None:
    assert allowed([], -20.0) == set(range(BEGIN, BEGIN + 51))


def test_the_first_second_is_openais_default() -> None:
    assert DecodingOptions().max_initial_timestamp == 0.02 * LAST_INITIAL


def test_after_a_segment_comes_a_time_not_before_its_end_or_the_end_of_text() -> None:
    segment = [BEGIN, 5, BEGIN + 100]
    specials = set(range(EOT, BEGIN - 1))  # left to the list of suppressed tokens, but for <|notimestamps|>
    assert allowed(segment, -20.0) == specials | set(range(BEGIN + 100, VOCABULARY))
    assert allowed(segment, 20.0) == set(range(BEGIN + 100, VOCABULARY))


def test_a_segment_takes_time() -> None:
    assert min(allowed([BEGIN + 100, 5], 20.0)) == BEGIN + 101


def test_a_segment_has_words() -> None:
    assert allowed([BEGIN], 20.0) == set(range(BEGIN - 1))


def test_times_win_together_where_none_would_alone() -> None:
    scores = torch.zeros(1, VOCABULARY)
    scores[0, 5] = 5.0  # e^5 = 148: less than 1501 times together, more than 101
    assert torch.isfinite(ours([[BEGIN, 6]], scores)[0]).nonzero().min() == BEGIN + 1
    assert torch.isfinite(ours([[BEGIN + 1399, 6]], scores)[0, 5])


def test_rules_of_one_checkpoint_are_interchangeable() -> None:
    assert TimestampRule(BEGIN, EOT) == RULE
    assert TimestampRule(BEGIN - 1, EOT - 1) != RULE
