"""Does the output repeat itself? Language models fall into loops, and what was sent cannot be taken back."""

from __future__ import annotations

import re

from asr_core.types import (
    Accept,
    ClipContext,
    ClipOutput,
    NoSpeech,
    PreparedClip,
    Retry,
    Tokens,
    TranscriptionRequest,
    Verdict,
)
from asr_qwen3.decoding import spell, split_preamble
from asr_qwen3.frontend import Frontend, attempts
from asr_qwen3.languages import NOBODY

LOOP_TOKENS = 28
"""A loop has at least so many tokens: a run of 32 in which the preamble has four."""

LOOP_REPEATS = 8
"""Nobody says the same sentence eight times in a row; the same short word, in fewer tokens, well."""

LONGEST_PATTERN = 16
"""Tokens of what is looked for; longer sentences that come back are rarer and cost more runs to be sure of."""

REPEATED = re.compile(r"(.)\1{20}|(?=.{40})(.{1,20}?)\2{19}", re.DOTALL)
"""The official post-processing's rule: over 20 equal characters, or a pattern of up to 20 of them 20 times.

It looks for the second only where 40 characters follow.
"""


def review_output(
    frontend: Frontend,
    output: ClipOutput,
    prepared: PreparedClip,
    request: TranscriptionRequest,
    context: ClipContext,
) -> Verdict:
    """A further attempt at what repeats itself while there is one left; no speech where the model named nobody."""
    new = tuple(token for token in output.tokens if token not in prepared.stop)
    name, said = split_preamble(frontend, output.given + new)
    if output.finish and name == NOBODY and not spell(frontend, said).strip():
        return NoSpeech()
    if context.attempt + 1 < len(attempts(request)) and (is_loop(said, len(new)) or REPEATED.search(output.text)):
        return Retry("repeats itself")
    return Accept()


def is_loop(tokens: Tokens, new: int) -> bool:
    """Whether a pattern came again and again, for the last time among the ``new`` last tokens."""
    ends = range(max(1, len(tokens) - new + 1), len(tokens) + 1)
    return any(_ends_at(tokens, end, period) for end in ends for period in range(1, LONGEST_PATTERN + 1))


def _ends_at(tokens: Tokens, end: int, period: int) -> bool:
    """Whether the tokens up to ``end`` are one pattern of ``period`` tokens for as long as makes a loop."""
    needed = max(LOOP_TOKENS, LOOP_REPEATS * period)
    stretch = tokens[max(0, end - needed) : end]
    return len(stretch) == needed and stretch[period:] == stretch[:-period]
