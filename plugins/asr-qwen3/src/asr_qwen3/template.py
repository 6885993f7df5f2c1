"""The checkpoint's own chat template, rendered once per kind of request by the processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from transformers.models.qwen3_asr.processing_qwen3_asr import LANGUAGE_CODE_TO_NAME

from asr_core.errors import CheckpointError
from asr_core.prompts import PromptTokenizer
from asr_core.types import Tokens

STAND_IN = "\ue000vocabulary\ue001"
"""Stands for a caller's prompt while the template is rendered: letters that no template has."""

NAMES: Mapping[str, str] = LANGUAGE_CODE_TO_NAME
"""What the model calls each language, by code."""


@frozen(eq=False)
class Template:
    """``bare`` and ``prompted`` end where the model's turn begins; each language's prefill is what follows there."""

    tokenizer: PromptTokenizer = field(repr=False)
    bare: str
    prompted: str
    prefills: Mapping[str, Tokens] = field(repr=False)

    @classmethod
    def of(cls, processor: Any) -> Template:
        """Render every kind of request.

        Raises:
            CheckpointError: there is no chat template, or none for this model.
        """
        try:
            bare, prompted = _render(processor, None, None), _render(processor, None, STAND_IN)
            forced = {code: _render(processor, code, None) for code in NAMES}
        except Exception as error:  # jinja and transformers have their own trees
            raise CheckpointError(
                f"the chat template cannot be used: {error}; chat_template.jinja belongs beside config.json"
            ) from error
        heard = {text.count(processor.audio_token) for text in (bare, prompted)} == {1}
        if not (heard and STAND_IN in prompted and all(text.startswith(bare) for text in forced.values())):
            raise CheckpointError("the chat template has no place for the audio, a prompt or a language")
        tokenizer = PromptTokenizer(processor.tokenizer.backend_tokenizer)
        prefills = {code: tokenizer.encode(text[len(bare) :]) for code, text in forced.items()}
        return cls(tokenizer, bare, prompted, prefills)

    def encode(self, prompt: str | None) -> Tokens:
        """Ids of everything before the model's turn; one placeholder stands for the audio."""
        if prompt is None:
            return self.tokenizer.encode(self.bare)
        return self.tokenizer.encode(self.prompted, {STAND_IN: prompt})


def _render(processor: Any, language: str | None, prompt: str | None) -> str:
    # The sound is only asked whether it is one.
    rendered: Sequence[str] = processor.apply_transcription_request(
        np.zeros(1, np.float32), language=language, prompt=prompt, tokenize=False
    )
    return rendered[0]
