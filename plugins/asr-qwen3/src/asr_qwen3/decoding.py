"""Tokens to text: what comes before the marker names the language and is never text."""

from __future__ import annotations

from attrs import frozen

from asr_core.types import Language, Piece, Tokens
from asr_qwen3.frontend import Frontend

OPENING = "language "
"""What the preamble begins with; a name and the marker follow."""

LONGEST_NAME = 32
"""Letters of a language's name, twice what the longest known one has; more of them are words somebody said."""

LONGEST_PREAMBLE = 24
"""Tokens held back in wait for the marker, several times what the longest preamble has."""


@frozen
class TextState:
    """``waiting`` are the tokens of what may yet turn out to be the preamble, None once the text has begun."""

    waiting: Tokens | None = ()


def decode_tokens(frontend: Frontend, tokens: Tokens, state: TextState | None, final: bool) -> tuple[Piece, TextState]:
    """Hold the preamble back until the marker comes; if it never does, what was held is text."""
    waiting = (state or TextState()).waiting
    if waiting is None:
        return _text(frontend, tokens), TextState(None)
    for number, token in enumerate(tokens, 1):
        waiting += (token,)
        if waiting[-len(frontend.marker) :] == frontend.marker:
            mark = _language(frontend, name_before_marker(frontend, waiting))
            return (*mark, *_text(frontend, tokens[number:])), TextState(None)
        if not _may_be_preamble(frontend, waiting):
            return _text(frontend, waiting + tokens[number:]), TextState(None)
    return (_text(frontend, waiting), TextState(None)) if final else ((), TextState(waiting))


def split_preamble(frontend: Frontend, tokens: Tokens) -> tuple[str | None, Tokens]:
    """The name before the first marker, in lower case, and the tokens behind it; without a marker None and all."""
    width = len(frontend.marker)
    for end in range(width, min(len(tokens), LONGEST_PREAMBLE) + 1):
        if tokens[end - width : end] == frontend.marker:
            return name_before_marker(frontend, tokens[:end]), tokens[end:]
    return None, tokens


def name_before_marker(frontend: Frontend, preamble: Tokens) -> str:
    """The language that ``preamble``, which ends with the marker, names; in lower case."""
    return spell(frontend, preamble[: -len(frontend.marker)]).strip().lower().removeprefix(OPENING).strip()


def _language(frontend: Frontend, name: str) -> tuple[Language, ...]:
    code = frontend.languages.get(name)
    return (Language(code),) if code else ()


def _may_be_preamble(frontend: Frontend, tokens: Tokens) -> bool:
    if len(tokens) > LONGEST_PREAMBLE:
        return False
    begun = _begun_marker(tokens, frontend.marker)
    said = spell(frontend, tokens[: len(tokens) - begun]).lstrip().lower()
    if not said.startswith(OPENING):
        return OPENING.startswith(said)
    name = "".join(said.removeprefix(OPENING).split())
    return len(name) <= LONGEST_NAME and (not name or name.isalpha())


def _begun_marker(tokens: Tokens, marker: Tokens) -> int:
    """How many of the last tokens are the first of a marker that is not complete."""
    return next((n for n in range(len(marker) - 1, 0, -1) if tokens[-n:] == marker[:n]), 0)


def _text(frontend: Frontend, tokens: Tokens) -> Piece:
    said = spell(frontend, tokens)
    return (said,) if said else ()


def spell(frontend: Frontend, tokens: Tokens) -> str:
    """Byte-level text; tokens that were added to the vocabulary steer the model and say nothing."""
    words = [token for token in tokens if token not in frontend.silent]
    return frontend.tokenizer.decode(words, skip_special_tokens=False) if words else ""
