"""Engines generate tokens: their protocol is in :mod:`asr_core.engines.protocol`, the embedded one in ``torch``."""
