"""One model's weights as each peer wants them, so that all compute with the same numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from attrs import frozen
from transformers import (
    GenerationConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizerFast,
)
from whisper.model import ModelDimensions, Whisper

from asr_whisper.checkpoints import resolve
from asr_whisper.config import Dimensions
from asr_whisper.frontend import Frontend, prepare_frontend
from asr_whisper.openai_pt import _DIMENSIONS, _rename
from asr_whisper.weights import open_module

from .. import ctranslate2

MODEL = "whisper-base"


@frozen
class Weights:
    """Where each layout is, below one directory."""

    directory: Path

    @property
    def transformers(self) -> Path:
        """What ``from_pretrained`` takes, as on the hub."""
        return self.directory / "transformers"

    @property
    def openai(self) -> Path:
        """What ``whisper.load_model`` takes."""
        return self.directory / "openai.pt"

    @property
    def ctranslate2(self) -> Path:
        """What faster-whisper takes."""
        return self.directory / "ctranslate2"


def save(weights: Weights) -> None:
    """Write all three."""
    checkpoint = resolve(MODEL)
    assert checkpoint, MODEL
    frontend = prepare_frontend(checkpoint)
    module = open_module(checkpoint, "float32", "cpu")
    _save_transformers(module, frontend, weights.transformers)
    _save_openai(module, frontend, weights.openai)
    ctranslate2.save(MODEL, weights.ctranslate2)


def _save_transformers(module: WhisperForConditionalGeneration, frontend: Frontend, directory: Path) -> None:
    special, end = frontend.special, frontend.special.eot
    ids = {"decoder_start_token_id": special.sot, "bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    # vLLM reads them here, transformers in the settings for generation.
    module.config.update(ids)
    module.generation_config = GenerationConfig(
        **ids,
        is_multilingual=True,
        lang_to_id={f"<|{code}|>": token for code, token in special.languages.items()},
        task_to_id={"transcribe": special.transcribe, "translate": special.translate},
        no_timestamps_token_id=special.no_timestamps,
        prev_sot_token_id=special.previous,
        suppress_tokens=list(frontend.suppression.always),
        begin_suppress_tokens=list(frontend.suppression.at_begin),
        alignment_heads=[list(pair) for pair in frontend.config.alignment_heads],
        max_initial_timestamp_index=50,
        max_length=frontend.config.dims.text_context,
    )
    module.save_pretrained(directory)
    WhisperFeatureExtractor(feature_size=frontend.config.dims.mels).save_pretrained(directory)
    tokenizer = WhisperTokenizerFast(tokenizer_object=frontend.tokenizer, pad_token="<|endoftext|>")  # noqa: S106
    tokenizer.save_pretrained(directory)


def _save_openai(module: WhisperForConditionalGeneration, frontend: Frontend, file: Path) -> None:
    dims = _openai_dimensions(frontend.config.dims)
    names, state = Whisper(ModelDimensions(**dims)).state_dict(), module.state_dict()
    torch.save({"dims": dims, "model_state_dict": {name: state[_rename(name)] for name in names}}, file)


def _openai_dimensions(dims: Dimensions) -> dict[str, int]:
    return {name: getattr(dims, ours) for name, ours in _DIMENSIONS.items()}


if __name__ == "__main__":
    save(Weights(Path(sys.argv[1])))
