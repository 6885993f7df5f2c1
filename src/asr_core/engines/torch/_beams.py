"""Beam search: several texts of one request side by side, in one slot of memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import torch
from attrs import define, field, frozen

from asr_core.engines.torch._batch import Branches
from asr_core.engines.torch._sampling import Choice
from asr_core.errors import EngineError


@frozen
class Text:
    """The beginning of an output, or all of it: tokens with their log-probabilities."""

    choices: tuple[Choice, ...] = ()
    logprob: float = 0.0

    def then(self, token: int, logprob: float) -> Text:
        """One token more."""
        return Text((*self.choices, (token, logprob)), self.logprob + logprob)

    @property
    def tokens(self) -> list[int]:
        """Without the log-probabilities."""
        return [token for token, _ in self.choices]

    @property
    def mean(self) -> float:
        """By the sum, short texts would always win."""
        return self.logprob / max(1, len(self.choices))


@define(eq=False)
class Beams:
    """The ``width`` likeliest beginnings go on, whatever they came from, until as many texts have ended in ``stop``.

    The search is that of OpenAI's ``BeamSearchDecoder`` at a patience of 1. The best has the highest mean
    log-probability, over its stop token too, which that one's ranker does not count. Texts are at most ``budget`` long,
    and stand behind ``prefix`` positions of memory.
    """

    width: int
    stop: frozenset[int]
    budget: int
    prefix: int
    live: list[Text] = field(init=False, factory=lambda: [Text()])
    ended: list[Text] = field(init=False, factory=list)
    _follows: torch.Tensor = field(init=False)
    """Which positions of memory hold each of ``live``, but for its last token: bool of shape [live, held]."""

    _told: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._follows = torch.ones(1, self.prefix, dtype=torch.bool)

    @property
    def last(self) -> tuple[int, ...]:
        """The last token of each that goes on, which is to be read next."""
        return tuple(text.choices[-1][0] for text in self.live)

    @property
    def branches(self) -> Branches:
        """Where these go: to places that nobody needs any more, then to new ones."""
        held = self._follows.shape[1]
        unused = (~self._follows.any(0)).nonzero()[:, 0].tolist()
        return Branches((*unused, *range(held, held + len(self.live)))[: len(self.live)], self._follows)

    def advance(self, logprobs: torch.Tensor) -> list[Choice]:
        """Go on by what may follow each, float32 of shape [live, vocabulary]; what is decided by now and is new.

        Raises:
            EngineError: nothing may follow.
        """
        follows = self._read() if self.live[0].choices else self._follows
        parents: list[int] = []
        live: list[Text] = []
        for parent, token, logprob in self._candidates(logprobs):
            text = self.live[parent].then(token, logprob)
            if token in self.stop:
                self.ended.append(text)
                continue
            live.append(text)
            parents.append(parent)
            if len(live) == self.width:
                break
        self.live, self._follows = live, follows[parents]
        return self._decided()

    def _read(self) -> torch.Tensor:
        """``_follows`` once the last tokens are in memory too."""
        places = self.branches.places
        grown = max(0, 1 + max(places) - self._follows.shape[1])
        follows = torch.nn.functional.pad(self._follows, (0, grown))
        follows[range(len(places)), places] = True
        return follows

    def _candidates(self, logprobs: torch.Tensor) -> Sequence[tuple[int, int, float]]:
        """Parents, tokens and log-probabilities, the likeliest text first: enough of them if all stops are among."""
        count = min(self.width + len(self.stop), logprobs.shape[1])
        best, tokens = logprobs.topk(count)
        found = [
            (parent, token, logprob)
            for parent, row in enumerate(zip(tokens.tolist(), best.tolist(), strict=True))
            for token, logprob in zip(*row, strict=True)
            if logprob > -torch.inf
        ]
        if not found:
            raise EngineError("the rules of the request forbid every token")
        return sorted(found, key=lambda one: self.live[one[0]].logprob + one[2], reverse=True)

    def _decided(self) -> list[Choice]:
        """What all have in common, or all of the best when it is over."""
        if self._over:
            # Those that the budget cut off only count where not enough have ended.
            texts = self.ended if len(self.ended) >= self.width else [*self.ended, *self.live]
            return list(max(texts, key=lambda text: text.mean).choices[self._told :])
        columns = zip(*(text.choices[self._told :] for text in (*self.ended, *self.live)), strict=False)
        new = [column[0] for column in takewhile(_equal, columns)]
        self._told += len(new)
        return new

    @property
    def _over(self) -> bool:
        return not self.live or len(self.ended) >= self.width or len(self.live[0].choices) >= self.budget


def _equal(column: Sequence[Choice]) -> bool:
    return len({token for token, _ in column}) == 1
