"""Joining texts at a seam, by the two characters that meet there and never by the language that was asked for."""

from __future__ import annotations

from collections.abc import Iterable

UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x30FF),  # CJK radicals and punctuation, kana
    (0x3190, 0x4DBF),  # kanbun, strokes, CJK extension A (3100-318F is bopomofo and Hangul)
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # CJK compatibility
    (0xFF00, 0xFFEF),  # full and half width forms
    (0x20000, 0x2FA1F),  # CJK extensions B and later
)
"""Unicode blocks of scripts written without spaces between words; Hangul is not among them."""


def join_texts(texts: Iterable[str]) -> str:
    """The texts in order, stripped, empty ones left out; one space at a seam unless a side is of an unspaced script."""
    joined = ""
    for text in texts:
        stripped = text.strip()
        if joined and stripped and not (_unspaced(joined[-1]) or _unspaced(stripped[0])):
            joined += " "
        joined += stripped
    return joined


def _unspaced(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in UNSPACED)
