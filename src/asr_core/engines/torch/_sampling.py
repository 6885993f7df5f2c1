"""From logits to tokens: rules first, then greedy or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from asr_core.errors import EngineError
from asr_core.types import Bias, Force, Rule, Sampling, Suppress, Tokens

Choice = tuple[int, float]
"""A token and its log-probability at temperature 1."""


def apply_rules(rules: Sequence[Rule], seen: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
    """``logits`` of shape [rows, vocabulary] after ``rules`` in order; ``seen[i]`` is the output of row i so far."""
    for rule in rules:
        if isinstance(rule, Suppress):
            _suppress(rule, seen, logits)
        elif isinstance(rule, Force):
            _force(rule, seen, logits)
        elif isinstance(rule, Bias):
            logits[:, list(rule.token_ids)] += rule.amount
        else:
            logits = rule.apply(seen, logits)
    return logits


MIN_TEMPERATURE = 1e-6
"""Below it float32 has nothing left to draw from but the best token."""


def choose(
    logits: torch.Tensor, samplings: Sequence[Sampling], generators: Sequence[torch.Generator]
) -> list[Choice | EngineError]:
    """A token for each row of ``logits`` [rows, vocabulary], or why there is none: no number, or all forbidden."""
    best, greedy = logits.max(-1)
    tokens = greedy.tolist()
    for row, sampling in enumerate(samplings):
        if sampling.temperature and bool(best[row].isfinite()):
            # From the best one down, so that no temperature is small enough to make infinities of it.
            scaled = (logits[row] - best[row]) / max(sampling.temperature, MIN_TEMPERATURE)
            tokens[row] = _draw(scaled, sampling, generators[row])
    # Takes half of what logsumexp does.
    logprobs = logits.log_softmax(-1).gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0]
    return [_choice(*row) for row in zip(best.tolist(), tokens, logprobs.tolist(), strict=True)]


def _choice(best: float, token: int, logprob: float) -> Choice | EngineError:
    if best == -torch.inf:
        return EngineError("the rules of the request forbid every token")
    if logprob != logprob:
        return EngineError("the model computed NaN; try another dtype")
    return token, logprob


def _suppress(rule: Suppress, seen: Sequence[Sequence[int]], logits: torch.Tensor) -> None:
    if not rule.at_begin:
        logits.index_fill_(1, _ids(tuple(rule.token_ids), logits.device), -torch.inf)
        return
    for row, output in enumerate(seen):
        if not output:
            logits[row].index_fill_(0, _ids(tuple(rule.token_ids), logits.device), -torch.inf)


@lru_cache(maxsize=32)
def _ids(token_ids: Tokens, device: torch.device) -> torch.Tensor:
    """Kept, as every token of every request asks for the same hundred: half of the time of forbidding them."""
    return torch.tensor(token_ids, dtype=torch.long, device=device)


def _force(rule: Force, seen: Sequence[Sequence[int]], logits: torch.Tensor) -> None:
    for row, output in enumerate(seen):
        if len(output) < len(rule.token_ids):
            kept = logits[row, rule.token_ids[len(output)]].clone()
            logits[row] = -torch.inf
            logits[row, rule.token_ids[len(output)]] = kept


def _draw(logits: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    # Drawn on the CPU, so that a seed means the same everywhere.
    ordered, ids = logits.cpu().sort(descending=True)
    probabilities = ordered[: sampling.top_k].softmax(-1)
    # A token is in the nucleus while the mass before it is below top_p: the likeliest always is.
    probabilities[probabilities.cumsum(-1) - probabilities >= sampling.top_p] = 0
    return int(ids[torch.multinomial(probabilities, 1, generator=generator)])
