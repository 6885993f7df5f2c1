"""A base for decoders with cross attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from asr_core.engines.torch._attention import Attention
from asr_core.engines.torch._batch import Batch, Row
from asr_core.engines.torch._decoders import BatchedDecoder, Head
from asr_core.engines.torch._heard import Heard


class ListeningDecoder(BatchedDecoder):
    """Adds what slots hear, and what their heads attended when that was asked; an :class:`AttentiveDecoder`.

    The subclass binds ``heard``, and in its ``forward`` attends in sight of :meth:`watch` and ends with :meth:`keep`.
    ``int8`` allows it to be held in int8, where what attends is.
    """

    attends = True
    """Whether it hears by ``heard.attend``, for which what is heard lies in memory as that reads it fastest."""

    def __init__(self, head: Head, like: torch.Tensor, capacity: int, *, int8: bool = False) -> None:
        super().__init__(head, like, capacity)
        self.heard = Heard(self.memory, attends=self.attends, int8=int8)
        self._attended: dict[int, torch.Tensor] = {}

    def extend(self, rows: Sequence[Row]) -> torch.Tensor:
        """See :class:`BatchedDecoder`."""
        self._attended.clear()
        return super().extend(rows)

    def attended(self, slot: int) -> torch.Tensor:
        """See :class:`AttentiveDecoder`."""
        return self._attended[slot]

    def free(self, slot: int) -> None:
        """See :class:`Decoder`."""
        super().free(slot)
        self.heard.free(slot)

    def release(self) -> None:
        """See :class:`SlotDecoder`."""
        super().release()
        self.heard.release()
        self._attended.clear()

    def watch(self, rows: Sequence[Row], batch: Batch) -> Attention:
        """What the coming forward reads and sees.

        Raises:
            TypeError: a row holds embeddings, which such a decoder hears and does not read.
            ValueError: a slot was never bound, or has no such head.
        """
        if any(True for row in rows for _ in row.embeddings()):
            raise TypeError("a decoder with cross attention takes tokens only")
        return Attention.of(rows, batch, self.heard)

    def keep(self, seen: Attention) -> None:
        """Let :meth:`attended` find what was seen."""
        self._attended.update(seen.by_slot())
