"""One turn's rows through the decoder and on to tokens; what fails is found, and fails alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from attrs import frozen

from asr_core.engines.protocol import GeneratedToken
from asr_core.engines.torch._beams import Beams
from asr_core.engines.torch._decoders import AttentiveDecoder, Decoder
from asr_core.engines.torch._runs import Run, Slot
from asr_core.engines.torch._sampling import Choice, apply_rules, choose
from asr_core.engines.torch._scheduler import Work
from asr_core.errors import EngineError

logger = logging.getLogger(__name__)

T = TypeVar("T")


@frozen(eq=False)
class Outcome:
    """What became of one row: tokens, none for a chunk of a prompt or while a beam disagrees, or an error."""

    work: Work
    result: Sequence[GeneratedToken] | EngineError


class Stepper:
    """Drives a decoder; whatever a module, a rule or a plugin raises comes back as the outcome of who is guilty."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.forwards = 0

    def step(self, works: Sequence[Work]) -> list[Outcome]:
        """An outcome for each."""
        outcomes = self._bind(works)
        failed = {outcome.work for outcome in outcomes}
        answered, others = self._extend([work for work in works if work not in failed])
        outcomes += others
        for group in _by_rules(answered):
            outcomes += self._decide(group)
        return outcomes

    def free(self, slot: Slot) -> EngineError | None:
        """Empty ``slot``, or say why it cannot be."""
        result = attempt(self._decoder.free, slot.number)
        if isinstance(result, EngineError):
            logger.error("freeing slot %d failed: %s", slot.number, result)
            return result
        return None

    def _bind(self, works: Sequence[Work]) -> list[Outcome]:
        """Let slots hear what their request listens to; the outcomes of those that cannot."""
        failed = []
        for work in works:
            if work.slot.cross != work.run.cross:
                error = attempt(self._listen, work.run, work.slot)
                if isinstance(error, EngineError):
                    failed.append(Outcome(work, error))
        return failed

    def _listen(self, run: Run, slot: Slot) -> None:
        slot.held.clear()
        if run.request.cross is None:
            self._decoder.free(slot.number)
        else:
            self._decoder.bind(slot.number, run.request.cross.rows)
        slot.cross = run.cross

    def _extend(self, works: Sequence[Work]) -> tuple[list[tuple[Work, torch.Tensor]], list[Outcome]]:
        """Logits of the rows that want any, and outcomes of the others; after an error each row is tried alone."""
        if not works:
            return [], []
        logits = attempt(self._forward, works)
        if not isinstance(logits, EngineError):
            answered = [(work, one) for work, one in zip(works, logits, strict=True) if len(one)]
            return answered, [Outcome(work, ()) for work, one in zip(works, logits, strict=True) if not len(one)]
        if len(works) == 1:
            return [], [Outcome(works[0], logits)]
        alone = [self._extend([work]) for work in works]
        return [pair for answered, _ in alone for pair in answered], [one for _, others in alone for one in others]

    def _forward(self, works: Sequence[Work]) -> tuple[torch.Tensor, ...]:
        logits = self._decoder.extend([work.row for work in works])
        self.forwards += 1
        if len(works) > 1 and len(logits) and bool(logits.max().isnan()):
            raise EngineError("NaN, and who it comes from can only be told alone")
        self._keep_attention(works)
        split: tuple[torch.Tensor, ...] = logits.split([work.row.want for work in works])
        return split

    def _keep_attention(self, works: Sequence[Work]) -> None:
        attending = [work for work in works if work.row.attend]
        if attending and isinstance(self._decoder, AttentiveDecoder):
            for work in attending:
                work.run.attention.append(self._decoder.attended(work.slot.number).cpu().numpy())

    def _decide(self, group: Sequence[tuple[Work, torch.Tensor]]) -> list[Outcome]:
        """Tokens for rows with equal rules; if these fail together, each row is tried alone."""
        works = [work for work, _ in group]
        found = attempt(_search if works[0].run.beams else _choose, works, torch.cat([logits for _, logits in group]))
        if not isinstance(found, EngineError):
            return [
                Outcome(work, choices if isinstance(choices, EngineError) else attempt(_tokens, work, choices, logits))
                for (work, logits), choices in zip(group, found, strict=True)
            ]
        if len(group) == 1:
            return [Outcome(works[0], found)]
        return [outcome for one in group for outcome in self._decide([one])]


def attempt(job: Callable[..., T], *args: object) -> T | EngineError:
    """The result of ``job``, or its error; SystemExit too, which must not end the turns of all others."""
    try:
        return job(*args)
    except BaseException as error:
        return as_engine_error(error)


def as_engine_error(error: BaseException) -> EngineError:
    """``error`` itself if it is one, else one that says what went wrong."""
    if isinstance(error, EngineError):
        return error
    wrapped = EngineError(f"generation failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error.with_traceback(None)  # a traceback would keep the step's tensors alive
    return wrapped


def _by_rules(rows: Sequence[tuple[Work, torch.Tensor]]) -> list[list[tuple[Work, torch.Tensor]]]:
    groups: list[list[tuple[Work, torch.Tensor]]] = []
    for row in rows:
        # Rules are compared, not hashed: a plugin's own may hold a list or a tensor.
        known = next((group for group in groups if _alike(group[0][0].run, row[0].run)), None)
        if known is None:
            groups.append(known := [])
        known.append(row)
    return groups


def _equal(one: object, other: object) -> bool:
    return attempt(lambda: bool(one == other)) is True


def _alike(one: Run, other: Run) -> bool:
    return (one.beams is None) == (other.beams is None) and _equal(one.request.rules, other.request.rules)


def _choose(works: Sequence[Work], logits: torch.Tensor) -> list[list[Choice] | EngineError]:
    """The next token of each work."""
    ruled = _rule(works, [work.run.output for work in works], logits)
    chosen = choose(ruled, [work.run.request.sampling for work in works], [work.run.generator for work in works])
    return [choice if isinstance(choice, EngineError) else [choice] for choice in chosen]


def _search(works: Sequence[Work], logits: torch.Tensor) -> list[list[Choice] | EngineError]:
    """What the beams of each work decide."""
    beams = [work.run.beams for work in works if work.run.beams is not None]
    pairs = zip(works, beams, strict=True)
    seen = [[*work.run.request.given, *text.tokens] for work, one in pairs for text in one.live]
    ruled = _rule(works, seen, logits).split([len(one.live) for one in beams])
    return [attempt(_advance, one, rows) for one, rows in zip(beams, ruled, strict=True)]


def _advance(beams: Beams, logits: torch.Tensor) -> list[Choice]:
    # Looked for here, as the log-probabilities of a text after which all is forbidden are NaN too.
    if bool(logits.max().isnan()):
        raise EngineError("the model computed NaN; try another dtype")
    return beams.advance(logits.log_softmax(-1))


def _rule(works: Sequence[Work], seen: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
    ruled = apply_rules(works[0].run.request.rules, seen, logits)
    if ruled.shape != logits.shape:
        raise EngineError(f"a rule made logits of shape {list(ruled.shape)} out of {list(logits.shape)}")
    return ruled


def _tokens(work: Work, choices: Sequence[Choice], logits: torch.Tensor) -> list[GeneratedToken]:
    """As they are told; what was inspected or attended with the first."""
    run, inspected = work.run, tuple[float, ...]()
    if run.request.inspect and not run.generated:
        inspected = tuple(logits[0].log_softmax(-1)[list(run.request.inspect)].tolist())
    attention = np.concatenate(run.attention, axis=1) if run.attention else None
    run.attention.clear()
    first = [GeneratedToken(*choice, inspected, attention) for choice in choices[:1]]
    return first + [GeneratedToken(*choice) for choice in choices[1:]]
