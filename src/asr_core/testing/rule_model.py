"""The language model that engines are tested with: no weights, a rule that anybody can work out.

The torch engine of the tests speaks it through a decoder, a remote one has it in its server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from attrs import define, evolve, field

from asr_core.engines.protocol import EncodedRows, Finished, GeneratedToken, GenerationRequest
from asr_core.types import Bias, Force, Rule, Sampling, Suppress, Tokens

Item = GeneratedToken | Finished

VOCABULARY = 64

SLOW, FAULT = 62, 63
"""As the first token of a prompt: every step takes PACE seconds; the model raises when it has read ENDURES values."""

PACE = 0.005
ENDURES = 6


@define
class Context:
    """A language model without weights: all that a request has read, and the scores of what comes next.

    The state starts at 0 and becomes ``(33 * state + value + 1) % 65521`` with each value: first the rows of ``cross``,
    then prompt, given and output. A token counts as itself, an encoder row as VOCABULARY plus its first number. The
    logit of token t is ``-0.5 * (37 * (t - state) % VOCABULARY)``: the likeliest is ``state % VOCABULARY``, and
    one value lost, doubled or taken from somebody else changes all that follows. Head h of layer l, after a position
    that left ``state``, looks at a row of value v with ``(state + 31 * l + 17 * h + v * v) % 97 / 8``.
    """

    states: list[int] = field(factory=lambda: [0])
    first: int | None = None
    heard: list[int] = field(factory=list)

    def hear(self, rows: Any) -> None:
        """Begin anew with ``rows`` of shape [n, width] for cross attention."""
        self.heard = values_of(rows)
        self.states = [reduce(_fold, self.heard, 0)]

    def read(self, values: Sequence[int], start: int) -> None:
        """Put values at positions ``start`` and on; what was there and behind is forgotten."""
        if start >= len(self.states):
            raise ValueError(f"nothing was read yet at position {len(self.states) - 1}, before {start}")
        if start == 0 and values:
            self.first = values[0]
        del self.states[start + 1 :]
        for value in values:
            self.states.append(_fold(self.states[-1], value))
        self._behave()

    def scores(self, want: int = 1) -> Any:
        """Logits after the last ``want`` positions, shape [want, VOCABULARY]."""
        states = np.array(self.states[len(self.states) - want :], np.int64)
        return -0.5 * (37 * (np.arange(VOCABULARY) - states[:, None]) % VOCABULARY)

    def attention(self, heads: Sequence[tuple[int, int]], start: int = 0) -> Any:
        """What ``heads`` see from position ``start`` on: float32 of shape [heads, positions, rows of cross]."""
        states = np.array(self.states[start + 1 :])[:, None]
        heard = np.array(self.heard, np.int64)
        seen = [(states + 31 * layer + 17 * head + heard * heard) % 97 / 8 for layer, head in heads]
        return np.array(seen, np.float32)

    def _behave(self) -> None:
        if self.first == SLOW:
            time.sleep(PACE)
        if self.first == FAULT and len(self.states) > ENDURES:
            raise ValueError("the prompt asked for a fault")


def _fold(state: int, value: int) -> int:
    return (33 * state + value + 1) % 65521


def values_of(part: Any) -> list[int]:
    """What a run of tokens, or rows of shape [n, width], adds to a context."""
    return list(part) if isinstance(part, tuple) else [VOCABULARY + int(row[0]) for row in part.tolist()]


def rows_of(*numbers: int) -> EncodedRows:
    """Encoder rows that count as ``VOCABULARY + number`` each; float32 of shape [n, 2]."""
    import torch

    rows = torch.tensor([(number, 0.5) for number in numbers], dtype=torch.float32)
    return EncodedRows(rows, repr(numbers).encode())


def follow(request: GenerationRequest, choose: Callable[[Any], int]) -> Iterator[Item]:
    """What an engine says to ``request``; ``choose`` picks from logits of shape [VOCABULARY], after rules."""
    context, output, position = Context(), list(request.given), 0
    if request.cross is not None:
        context.hear(request.cross.rows)
    values = [value for part in request.prompt for value in values_of(getattr(part, "rows", part))] + output
    if not values:
        raise ValueError("there is nothing to read")
    for number in range(request.budget):
        context.read(values, position)
        position += len(values)
        token, inspect = _next(context, request, output, choose), () if number else request.inspect
        attention = context.attention(request.attend) if request.attend and not number else None
        inspected = tuple(_logprobs(context.scores()[0])[list(inspect)].tolist())
        yield evolve(token, inspected=inspected, attention=attention)
        if token.id in request.stop:
            yield Finished("stop")
            return
        output.append(token.id)
        values = [token.id]
    yield Finished("length")


def _next(
    context: Context, request: GenerationRequest, output: Tokens | list[int], choose: Callable[[Any], int]
) -> GeneratedToken:
    scores = _ruled(request.rules, output, context.scores())[0]
    if np.isneginf(scores).all():
        raise ValueError("the rules forbid every token")
    token = choose(scores)
    return GeneratedToken(token, float(_logprobs(scores)[token]))


def _ruled(rules: Sequence[Rule], output: Sequence[int], scores: Any) -> Any:
    for rule in rules:
        if isinstance(rule, Suppress):
            scores[:, list(rule.token_ids)] -= np.inf if not (rule.at_begin and output) else 0
        elif isinstance(rule, Bias):
            scores[:, list(rule.token_ids)] += rule.amount
        elif isinstance(rule, Force):
            others = [t for t in range(VOCABULARY) if t not in rule.token_ids[len(output) :][:1]]
            scores[:, others if len(output) < len(rule.token_ids) else []] = -np.inf
        else:
            scores = rule.apply([output], scores)
    return scores


def _logprobs(scores: Any) -> Any:
    return scores - np.logaddexp.reduce(scores)


def greedy(scores: Any) -> int:
    """The likeliest of ``scores`` of shape [VOCABULARY]."""
    return int(scores.argmax())


def replaying(tokens: Sequence[int]) -> Callable[[Any], int]:
    """Chooses what was said before, then 0."""
    said = iter(tokens)
    return lambda scores: next(said, 0)


def texts(request: GenerationRequest, letters: Sequence[int]) -> list[list[Item]]:
    """All that can be said in ``letters`` and that rules allow, the highest mean log-probability first."""
    words = product(letters, repeat=request.budget)
    said = {tuple(items): items for items in (list(follow(request, replaying(word))) for word in words)}
    return sorted((items for items in said.values() if _mean(items) > -np.inf), key=_mean, reverse=True)


def _mean(items: Sequence[Item]) -> float:
    return float(np.mean([item.logprob for item in items if isinstance(item, GeneratedToken)]))


def drawing(sampling: Sampling) -> Callable[[Any], int]:
    """How a server may choose; which tokens a seed means is each engine's own affair."""
    random = np.random.default_rng(sampling.seed)

    def draw(scores: Any) -> int:
        order = scores.argsort()[::-1]
        mass = np.exp(_logprobs(scores / sampling.temperature))[order]
        mass[mass.cumsum() - mass >= sampling.top_p] = 0
        return int(random.choice(order, p=mass / mass.sum()))

    return draw if sampling.temperature else greedy


PROMPT = (5, 17, 3, 60)
ENDLESS = 10_000
"""A budget that takes a slow request longer than any test."""
