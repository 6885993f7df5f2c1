"""The languages Whisper was trained to tell apart, in the order of its vocabulary."""

from __future__ import annotations

from asr_whisper.config import WhisperConfig

_CODES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk
te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo
ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue
"""

CODES = tuple(_CODES.split())
"""Lower-case codes as in the tokens ``<|en|>`` ...; the last one, Cantonese, came with large-v3."""

WITH_CANTONESE = 51866
"""The vocabulary size from which on there is a token for it."""


def spoken(config: WhisperConfig) -> tuple[str, ...]:
    """Codes of the languages a checkpoint can be told to hear, told from its configuration alone."""
    if not config.multilingual:
        return ("en",)
    return CODES if config.dims.vocabulary >= WITH_CANTONESE else CODES[:-1]
