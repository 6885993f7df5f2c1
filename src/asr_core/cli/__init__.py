"""The command line: ``asr-core``, one module per command."""

from asr_core.cli._group import main

__all__ = ["main"]
