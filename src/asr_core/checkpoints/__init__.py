"""Helpers for plugins whose checkpoints are saved by ``save_pretrained``: found, read, fetched and loaded.

A plugin may do all this in its own way; nothing in the core but plugins calls it.
"""

from asr_core.checkpoints._pretrained import WEIGHT_FILES, Pretrained, load_module, require_equal, resolve
from asr_core.checkpoints._read import read_json

__all__ = ["WEIGHT_FILES", "Pretrained", "load_module", "read_json", "require_equal", "resolve"]
