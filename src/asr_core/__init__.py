"""Speech recognition as a plugin framework: a core that owns mechanics, models that are separate packages.

>>> import asr_core
>>> asr_core.load("some-model").transcribe("meeting.m4a").text  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asr_core.engines.protocol import EngineCard
from asr_core.errors import AsrError
from asr_core.hookspecs import HOOK_API, hookimpl
from asr_core.services import AlignerCard, DetectorCard
from asr_core.types import ModelCard, Transcript

if TYPE_CHECKING:
    from asr_core.api import Transcriber, load

__all__ = [
    "HOOK_API",
    "AlignerCard",
    "AsrError",
    "DetectorCard",
    "EngineCard",
    "ModelCard",
    "Transcriber",
    "Transcript",
    "hookimpl",
    "load",
]


def __getattr__(name: str) -> Any:
    """``load`` and ``Transcriber`` on first use, so that a plugin's import of this package stays cheap."""
    if name in ("load", "Transcriber"):
        from asr_core import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
