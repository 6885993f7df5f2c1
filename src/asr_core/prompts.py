"""Helpers for plugins that prompt a language model: templates in which callers' words stand, and placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from asr_core.errors import PluginError
from asr_core.types import AudioSlice, AudioSpan, PromptPart, Tokens


class PromptTokenizer:
    """Encodes text so that special tokens come from templates alone, never from a caller's words.

    ``tokenizer`` is one of the library ``tokenizers`` (transformers: ``backend_tokenizer``).
    """

    def __init__(self, tokenizer: Any) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in added.items()}
        longest_first = sorted(self._special, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        # The added tokens live in the tokenizer, not in its model; `split_special_tokens` would spare only those of
        # them that are flagged as special.
        self._plain = type(tokenizer)(tokenizer.model)
        self._plain.normalizer, self._plain.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer

    @property
    def special(self) -> Mapping[str, int]:
        """Ids of all added tokens, special or not, by content."""
        return self._special

    def encode_plain(self, text: str) -> Tokens:
        """A caller's text as text, whatever it looks like."""
        return tuple(self._plain.encode(text, add_special_tokens=False).ids) if text else ()

    def encode(self, rendered: str, callers: Mapping[str, str] | None = None) -> Tokens:
        """A rendered template in which each key of ``callers`` stands for that caller's text.

        Callers' text joins the text around it before it is cut into tokens, so that ids are what the whole would have
        had, special tokens in it excepted.
        """
        ids: list[int] = []
        text = ""
        for piece in (*self._pieces(rendered, callers or {}), None):
            if isinstance(piece, str):
                text += piece
                continue
            ids += self.encode_plain(text)
            ids += () if piece is None else (piece,)
            text = ""
        return tuple(ids)

    def _pieces(self, rendered: str, callers: Mapping[str, str]) -> Iterator[str | int]:
        stand_ins = re.compile("(" + "|".join(map(re.escape, callers)) + ")") if callers else None
        for part in stand_ins.split(rendered) if stand_ins else (rendered,):
            yield from (callers[part],) if part in callers else self._trusted(part)

    def _trusted(self, text: str) -> Iterator[str | int]:
        end = 0
        for match in self._pattern.finditer(text):
            yield text[end : match.start()]
            yield self._special[match[0]]
            end = match.end()
        yield text[end:]


def split_placeholders(ids: Sequence[int], token_id: int, spans: Sequence[AudioSpan]) -> tuple[PromptPart, ...]:
    """``ids`` with encoder rows of ``spans``, in order, in place of every ``token_id``.

    Placeholders may stand in several runs, with other tokens between; a run is cut where a span ends.

    Raises:
        PluginError: not as many placeholders as the spans have rows.
    """
    rows = ((number, row) for number, span in enumerate(spans) for row in range(span.tokens))
    parts: list[PromptPart] = []
    for is_audio, run in groupby(ids, lambda token: token == token_id):
        if not is_audio:
            parts.append(tuple(run))
            continue
        taken = [next(rows, (len(spans), 0)) for _ in run]
        for span, group in groupby(taken, lambda place: place[0]):
            places = list(group)
            parts.append(AudioSlice(span, places[0][1], len(places)))
    wanted, given = sum(span.tokens for span in spans), sum(token == token_id for token in ids)
    if wanted != given:
        raise PluginError(f"the prompt has {given} placeholders for {wanted} rows of audio")
    return tuple(parts)
