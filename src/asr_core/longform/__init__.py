"""Long audio: for now only how the texts of neighbouring clips are joined."""

from asr_core.longform._join import join_texts

__all__ = ["join_texts"]
