"""The languages Qwen3-ASR was trained to name."""

from __future__ import annotations

_CODES = "ar yue zh cs da nl en fil fi fr de el hi hu id it ja ko mk ms fa pl pt ro ru es sv th tr vi"

CODES = tuple(_CODES.split())
"""The codes of transformers' table, which also has the names the model writes; here so that listing needs no import."""

ALIASES = {"cn": "zh"}
"""What the model's own tools take for Chinese beside its code."""

NOBODY = "none"
"""The name the model writes, in lower case, where nobody speaks."""
