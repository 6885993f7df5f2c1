"""Limits where the caller names none."""

from __future__ import annotations

from typing import Final

from asr_core.types import UploadLimits

DEFAULT_LIMITS: Final = UploadLimits(min_seconds=0.0)
"""How little sound is too little is for an endpoint to say."""
