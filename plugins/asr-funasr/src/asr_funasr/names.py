"""The model by name. Importing this must stay cheap: it runs whenever plugins are listed."""

from __future__ import annotations

from asr_core.checkpoints import Pretrained
from asr_core.types import ModelCard

MODEL_TYPE = "fun_asr_nano"
"""``model_type`` in config.json."""

CARD = ModelCard(
    name="fun-asr-nano",
    checkpoints=("FunAudioLLM/Fun-ASR-Nano-2512-hf",),
    summary="Chinese, English and Japanese; hotwords and context",
    config=Pretrained({"model_type": MODEL_TYPE}),
)
