"""What the checkpoint's chat template knows: nothing else may be asked for."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from asr_core.checkpoints import Pretrained
from asr_core.errors import CheckpointError

LANGUAGES = {"zh": "中文", "en": "英文", "ja": "日文"}
"""By code, as transformers' processor writes them into the prompt; it refuses all others."""

STAND_IN = "\ue000{}\ue001"
"""Stands for a caller's text in a template; private-use characters, which no template trims or splits."""


@frozen
class Fields:
    """Which fields of a request change the prompt."""

    language: bool
    prompt: bool
    keywords: bool
    itn: bool


PUBLISHED = Fields(language=True, prompt=True, keywords=True, itn=False)
"""What transformers' processor passes to the template of FunAudioLLM/Fun-ASR-Nano-2512-hf."""


def read_fields(checkpoint: Pretrained) -> Fields:
    """Found by rendering the template with and without each field.

    Raises:
        CheckpointError: no template, or one that cannot be rendered.
    """
    if checkpoint.directory is None and checkpoint.repository is None:
        return PUBLISHED
    template, text = _find(checkpoint), STAND_IN.format(0)
    plain = _render(template)
    return Fields(
        language=any(_differs(template, plain, {"type": "language", "language": name}) for name in LANGUAGES.values()),
        prompt=_differs(template, plain, {"type": "text", "text": text}, shows=text),
        keywords=_differs(template, plain, {"type": "keywords", "keywords": [text]}, shows=text),
        itn=any(_differs(template, plain, itn=value) for value in (True, False)),
    )


def _find(checkpoint: Pretrained) -> str:
    # in the order of precedence that transformers' processor has
    for name in ("processor_config.json", "chat_template.json"):
        if template := checkpoint.read_json(name).get("chat_template"):
            return str(template)
    if template := checkpoint.read_text("chat_template.jinja"):
        return template
    place = checkpoint.directory or checkpoint.repository
    raise CheckpointError(f"{place} has no chat_template.jinja: save the processor beside the model")


def _differs(template: str, plain: str, *content: dict[str, Any], shows: str = "", **variables: Any) -> bool:
    """Whether the prompt becomes another one, with ``shows`` in it."""
    try:
        rendered = _render(template, *content, **variables)
    except CheckpointError:
        return False  # templates may refuse what they do not know
    return rendered != plain and shows in rendered


def _render(template: str, *content: dict[str, Any], **variables: Any) -> str:
    """A prompt as FunAsrNanoProcessor asks for it."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    message = {"role": "user", "content": [{"type": "audio", "audio": ""}, *content]}
    try:
        rendered, _ = render_jinja_template(
            [[message]], chat_template=template, add_generation_prompt=True, **variables
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise CheckpointError(f"the chat template cannot be rendered: {error}") from error
    return str(rendered[0])
