"""The grammar of timestamp tokens as a rule on logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen

LAST_INITIAL = 50
"""The first timestamp is at most 50 steps of 20 ms: the original implementation's ``max_initial_timestamp`` of 1 s."""


@frozen
class TimestampRule:
    """Timestamps come in pairs, never go back, open the output, and win when together they outweigh any one word.

    Text tokens lie below ``eot``, timestamps from ``begin`` on, and ``<|notimestamps|>`` right before them.
    """

    begin: int
    eot: int

    def apply(self, seen: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
        """Logits of shape [rows, vocabulary] in and out, masked in place."""
        logits[:, self.begin - 1] = -torch.inf
        for output, row in zip(seen, logits, strict=True):
            self._pair(output, row)
            self._advance(output, row)
            if not output:
                row[: self.begin] = -torch.inf
                row[self.begin + LAST_INITIAL + 1 :] = -torch.inf
            self._prefer_time(row)
        return logits

    def _pair(self, output: Sequence[int], row: torch.Tensor) -> None:
        if not output or output[-1] < self.begin:
            return
        if len(output) < 2 or output[-2] >= self.begin:
            row[self.begin :] = -torch.inf
        else:
            row[: self.eot] = -torch.inf

    def _advance(self, output: Sequence[int], row: torch.Tensor) -> None:
        times = [token for token in output if token >= self.begin]
        if not times:
            return
        # The mark that opens a segment may repeat the one that closed the last; one that closes must lie behind.
        opens = output[-1] >= self.begin and not (len(output) < 2 or output[-2] >= self.begin)
        row[self.begin : times[-1] + (0 if opens else 1)] = -torch.inf

    def _prefer_time(self, row: torch.Tensor) -> None:
        logprobs = row.log_softmax(-1)
        if logprobs[self.begin :].logsumexp(-1) > logprobs[: self.begin].max():
            row[: self.begin] = -torch.inf
