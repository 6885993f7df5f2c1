"""Long audio: where it is cut, and how the texts of its clips become one."""

from asr_core.longform._cuts import Reason
from asr_core.longform._join import join_texts
from asr_core.longform._seam import seam
from asr_core.longform._split import Part, Splitting, halves, split

__all__ = ["Part", "Reason", "Splitting", "halves", "join_texts", "seam", "split"]
