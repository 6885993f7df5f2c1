"""Tokens to text: whatever the model says, control tokens stay out and no character is lost."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from asr_core.api import Transcriber
from asr_core.runtime.stream import ClipText
from asr_funasr.frontend import Frontend

from .conftest import ADDED, SPECIAL, unhurried

IDS = st.integers(0, 490)
"""All tokens and some ids that no token has, as the model's vocabulary is padded."""


def read(transcriber: Transcriber, ids: list[int]) -> tuple[list[str], str]:
    """What is sent, and the text in the end, of a clip whose output these are."""
    served, sent = transcriber.served, list[str]()
    text = ClipText(
        lambda tokens, state, final, times: served.hooks.decode_tokens(served.model, tokens, state, final, times),
        1000,
        sent.append,
    )
    text.begin(())
    for token in ids:
        text.take(token, -0.5)
        text.commit()
    text.close("stop")
    text.commit()
    return sent, text.folded().text


@unhurried
@given(ids=st.lists(IDS, max_size=60))
def test_any_tokens_are_text(transcriber: Transcriber, frontend: Frontend, ids: list[int]) -> None:
    sent, text = read(transcriber, ids)
    assert "".join(sent).strip() == text
    assert not any(name in text for name in (*SPECIAL, *ADDED))
    control = frontend.prompts.special.values()
    whole = frontend.tokenizer.decode([token for token in ids if token not in control], skip_special_tokens=False)
    # Damaged characters are replaced one by one or several at once; what is none is all there, in order.
    letters = [letter for letter in "".join(sent) if letter.isascii()]
    assert letters == [letter for letter in whole if letter.isascii()]


@unhurried
@given(text=st.text())
def test_text_comes_through(transcriber: Transcriber, frontend: Frontend, text: str) -> None:
    _, said = read(transcriber, list(frontend.prompts.encode_plain(text)))
    assert said == unicodedata.normalize("NFC", text).strip()


@unhurried
@given(text=st.text(), control=st.lists(st.sampled_from([*SPECIAL, *ADDED]), min_size=1), dice=st.randoms())
def test_control_tokens_anywhere_change_nothing(
    transcriber: Transcriber, frontend: Frontend, text: str, control: list[str], dice: object
) -> None:
    ids = list(frontend.prompts.encode_plain(text))
    for name in control[:3]:  # more in one character would count as damage
        ids.insert(dice.randint(0, len(ids)), frontend.prompts.special[name])  # type: ignore[attr-defined]
    whole = unicodedata.normalize("NFC", text).strip()
    _, said = read(transcriber, ids)
    assert said == whole or "\ufffd" in said
    assert not any(name in said and name not in whole for name in (*SPECIAL, *ADDED))
