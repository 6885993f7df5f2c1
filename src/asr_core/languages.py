"""From what a caller writes (a code, a tag, an English name) to the one code a model has for that language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache

LONGEST = 100
"""Characters; no language tag or name comes near."""

_TAG = re.compile(r"[a-z]{2,3}(-[a-z]{4})?(-([a-z]{2}|\d{3}))?(-([a-z\d]{5,8}|\d[a-z\d]{3}))*", re.ASCII)
"""RFC 5646 in lower case: language, script, region, variants."""

_CHINESE = re.compile(
    r"^(zh|zho|chi)-(?=(cdo|cjy|cmn|cnp|cpx|csp|czh|czo|gan|hak|hsn|lzh|mnp|nan|wuu|yue|hakka|xiang)(-|$))"
)
"""The prefix that IANA's registry lets stand before a language of China: zh-yue is yue, and no kind of zh."""

_NORWEGIAN = {"no": "nb", "nb": "no"}
"""CLDR has no alias between them, though what is called Norwegian is Bokmål; Nynorsk is neither."""

_FURTHER_NAMES = {
    "bengali": "bn",
    "castilian": "es",
    "haitian": "ht",
    "letzeburgesch": "lb",
    "mandarin": "zh",
    "moldovan": "ro",
    "myanmar": "my",
    "nynorsk": "nn",
    "panjabi": "pa",
    "pushto": "ps",
    "sinhalese": "si",
    "valencian": "ca",
}
"""English names, most of them from ISO 639-2, that babel's copy of CLDR spells otherwise."""


def is_given(text: str | None) -> bool:
    """False for nothing, white space and ``auto``, which all leave it to the model."""
    return text is not None and text.strip().lower() not in ("", "auto")


def match_language(text: str, spoken: Sequence[str], aliases: Mapping[str, str]) -> str | None:
    """The one of the codes ``spoken`` that ``text`` means; None when it means none of them, or nothing is given.

    What counts, in this order: a code as it stands; ``aliases``, lower-case, to codes; an English name; a tag in any
    case, with ``-`` or ``_``, whose script, region and variants may be more than the model tells apart.
    """
    written = text.strip()
    if len(written) > LONGEST or not is_given(written):
        return None
    if written in spoken:
        return written
    return aliases.get(written.lower()) or _match_tag(_tag(written), spoken)


def language_name(code: str) -> str:
    """English and in lower case; the code itself where CLDR knows no name."""
    names = {tag: name for name, tag in _names().items()}
    return _longest(code.lower(), names) or _longest(_canonical(code), names) or code


def _match_tag(tag: str, spoken: Sequence[str]) -> str | None:
    # Of two codes for one language the first is taken, hence reversed.
    if found := _longest(tag, {code.lower(): code for code in reversed(spoken)}):
        return found
    canonical = {_canonical(code): code for code in reversed(spoken)}
    tag = _canonical(tag)
    return _longest(tag, canonical) or canonical.get(_NORWEGIAN.get(tag.partition("-")[0], ""))


def _tag(text: str) -> str:
    """The tag that ``text`` stands for as a name, or is; empty if it is neither."""
    # Some names of three letters are another language's code: Kom is bkm, and kom is Komi.
    if len(text) > 3 and (named := _names().get(_plain(text))):
        return named
    tag = _spelled(text)
    return tag if _TAG.fullmatch(tag) else ""


def _spelled(tag: str) -> str:
    return _CHINESE.sub("", tag.lower().replace("_", "-"), count=1)


def _longest(tag: str, known: Mapping[str, str]) -> str | None:
    """Of what is ``known``, the entry for the longest beginning of ``tag``, cut between subtags."""
    while tag and tag not in known:
        tag = tag.rpartition("-")[0]
    return known.get(tag)


def _canonical(tag: str) -> str:
    """``tag`` with the language CLDR has in the place of a deprecated, a three-letter or a too narrow one."""
    language, dash, rest = _spelled(tag).partition("-")
    return _aliases().get(language, language) + dash + rest


def _plain(name: str) -> str:
    """Without accents, with single spaces between words: Norwegian Bokmål is seldom typed so."""
    letters = [letter for letter in unicodedata.normalize("NFKD", name.lower()) if not unicodedata.combining(letter)]
    return " ".join(re.split(r"[\s_-]+", "".join(letters)))


@cache
def _aliases() -> dict[str, str]:
    from babel.core import get_global

    return {code: alias.lower().replace("_", "-") for code, alias in get_global("language_aliases").items()}


@cache
def _names() -> dict[str, str]:
    """Plain English name to tag; of several names for one tag, CLDR's comes last."""
    from babel.core import Locale

    names = {_plain(name): tag.lower().replace("_", "-") for tag, name in Locale("en").languages.items()}
    return _FURTHER_NAMES | names
