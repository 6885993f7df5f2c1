"""Limits where the caller names none."""

from __future__ import annotations

from typing import Final

from asr_core.types import UploadLimits

DEFAULT_LIMITS: Final = UploadLimits()
