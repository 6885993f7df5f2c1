"""Whatever a caller writes becomes one of the model's own codes, or nothing; the values are ISO 639's and CLDR's."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from babel.core import Locale
from hypothesis import given
from hypothesis import strategies as st

from asr_core.languages import is_given, language_name, match_language

_MANY = """
en zh de es fr pt nl he id yi jw tl no nn sr ro ms et fa sw ht my lb ps pa si ca mi cs sq el hy ka mk sk cy eu is bo bn
yue
"""

MANY = tuple(_MANY.split())
"""With codes that others write differently: jw is jv by now, tl goes under fil."""

SAME = {"ak": "tw", "tw": "ak", "fil": "tl", "tl": "fil", "nb": "no", "no": "nb", "sh": "sr"}
"""Pairs of codes for what CLDR holds to be one language, and Serbo-Croatian, which is to it Serbian in Latin script."""

COMMON = ("en", "zh", "de", "pt", "no", "sr")


def match(text: str, *spoken: str) -> str | None:
    return match_language(text, spoken, {})


@pytest.mark.parametrize("code", MANY)
def test_a_code_is_itself(code: str) -> None:
    assert [match(written, *MANY) for written in (code, code.upper(), f" {code}\n")] == [code] * 3


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("en-US", "en"),
        ("en_us", "en"),
        ("PT-br", "pt"),
        ("pt_BR", "pt"),
        ("zh_CN", "zh"),
        ("zh-TW", "zh"),
        ("zh-Hant", "zh"),
        ("zh-Hant-TW", "zh"),
        ("zh_hans_cn", "zh"),
        ("sr-Latn", "sr"),
        ("sr_Cyrl_RS", "sr"),
        ("es-419", "es"),
        ("de-CH-1996", "de"),
        ("ca-ES-valencia", "ca"),
        ("nb-NO", "no"),
        ("yue-Hant-HK", "yue"),
        ("fil-PH", "tl"),
        ("iw-IL", "he"),
        ("cmn-Hans-CN", "zh"),
    ],
)
def test_of_a_tag_the_language_counts(tag: str, code: str) -> None:
    assert match(tag, *MANY) == code


@pytest.mark.parametrize(
    ("other", "code"),
    [
        # ISO 639-2, terminological and bibliographic
        *[("eng", "en"), ("zho", "zh"), ("chi", "zh"), ("deu", "de"), ("ger", "de"), ("spa", "es"), ("fra", "fr")],
        *[("fre", "fr"), ("por", "pt"), ("nld", "nl"), ("dut", "nl"), ("heb", "he"), ("ind", "id"), ("yid", "yi")],
        *[("jav", "jw"), ("tgl", "tl"), ("nor", "no"), ("nno", "nn"), ("srp", "sr"), ("ron", "ro"), ("rum", "ro")],
        *[("msa", "ms"), ("may", "ms"), ("fas", "fa"), ("per", "fa"), ("ces", "cs"), ("cze", "cs"), ("ell", "el")],
        *[("gre", "el"), ("hye", "hy"), ("arm", "hy"), ("kat", "ka"), ("geo", "ka"), ("mkd", "mk"), ("mac", "mk")],
        *[("slk", "sk"), ("slo", "sk"), ("cym", "cy"), ("wel", "cy"), ("eus", "eu"), ("baq", "eu"), ("isl", "is")],
        *[("ice", "is"), ("bod", "bo"), ("tib", "bo"), ("sqi", "sq"), ("alb", "sq"), ("mya", "my"), ("bur", "my")],
        # ISO 639-3: the language most people mean by the wider one
        *[("cmn", "zh"), ("zsm", "ms"), ("ekk", "et"), ("pes", "fa"), ("swh", "sw"), ("nob", "no"), ("prs", "fa")],
        # deprecated
        *[("iw", "he"), ("in", "id"), ("ji", "yi"), ("jv", "jw"), ("fil", "tl"), ("mo", "ro"), ("scc", "sr")],
    ],
)
def test_every_code_of_a_language_means_it(other: str, code: str) -> None:
    assert match(other, *MANY) == code


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("jw", "jv"),
        ("jv", "jw"),
        ("tl", "fil"),
        ("fil", "tl"),
        ("he", "iw"),
        ("iw", "he"),
        ("cmn", "zh"),
        ("zh", "cmn"),
    ],
)
def test_it_does_not_matter_which_code_the_model_has(spoken: str, written: str) -> None:
    assert match(written, spoken) == match(f"{written}-XX", spoken) == spoken


@pytest.mark.parametrize(
    ("written", "spoken", "code"),
    [
        ("nb", ("no",), "no"),
        ("nob", ("no", "nn"), "no"),
        ("no", ("nb",), "nb"),
        ("nor-NO", ("nn", "nb"), "nb"),
        ("nb", ("no", "nb"), "nb"),
        ("nob", ("no", "nb"), "nb"),
        ("no-NO", ("nb", "no"), "no"),
        ("nn", ("no", "nn"), "nn"),
        ("nn", ("no", "nb"), None),
        ("nno-NO", ("no", "nb"), None),
        ("no", ("nn",), None),
        ("nb", ("nn",), None),
    ],
)
def test_norwegian_is_bokmal_but_not_nynorsk(written: str, spoken: tuple[str, ...], code: str | None) -> None:
    assert match(written, *spoken) == code


@pytest.mark.parametrize(
    ("written", "spoken", "code"),
    [
        ("tl", ("fil", "tl"), "tl"),
        ("tl-PH", ("fil", "tl"), "tl"),
        ("fil", ("tl", "fil"), "fil"),
        ("sr-Latn", ("sh", "sr"), "sr"),
        ("sh", ("sr", "sh"), "sh"),
        ("zh-Hant-HK", ("zh", "zh-hant"), "zh-hant"),
        ("zh-TW", ("zh", "zh-hant"), "zh"),
        ("zh-yue", ("zh", "zh-yue"), "zh-yue"),
        ("fa-AF", ("prs",), "prs"),
        ("fa", ("prs",), None),
    ],
)
def test_the_nearest_code_is_taken(written: str, spoken: tuple[str, ...], code: str | None) -> None:
    assert match(written, *spoken) == code


@pytest.mark.parametrize("written", ["zh-yue", "ZH_YUE", "zh-yue-HK", "zho-yue", "chi_yue", "yue", "Cantonese"])
def test_cantonese_is_no_kind_of_chinese(written: str) -> None:
    assert match(written, "zh", "yue") == "yue"
    assert match(written, "zh", "zh-yue") == "zh-yue"
    assert match(written, "zh", "en") is None


@pytest.mark.parametrize(
    "written",
    ["wuu", "zh-wuu", "zh-hakka", "zh-xiang", "zh-min", "zh-min-nan", "nan", "hak", "Wu Chinese", "nn", "nds", "frr"],
)
def test_a_language_is_never_taken_for_its_neighbour(written: str) -> None:
    assert match(written, *COMMON, "min", "wu") is None


@pytest.mark.parametrize("written", ["zh-cmn", "zh-cmn-Hans-CN", "zh-guoyu", "Mandarin", "Simplified Chinese"])
def test_mandarin_is_what_is_called_chinese(written: str) -> None:
    assert match(written, *COMMON) == "zh"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *[("English", "en"), ("chinese", "zh"), ("GERMAN", "de"), ("Cantonese", "yue"), ("Haitian Creole", "ht")],
        *[
            ("haitian  creole", "ht"),
            ("haitian_creole", "ht"),
            ("Haitian", "ht"),
            ("Castilian", "es"),
            ("Flemish", "nl"),
        ],
        *[("valencian", "ca"), ("letzeburgesch", "lb"), ("pushto", "ps"), ("Pashto", "ps"), ("panjabi", "pa")],
        *[("moldavian", "ro"), ("moldovan", "ro"), ("sinhalese", "si"), ("burmese", "my"), ("myanmar", "my")],
        *[
            ("bengali", "bn"),
            ("Bangla", "bn"),
            ("Māori", "mi"),
            ("maori", "mi"),
            ("Norwegian", "no"),
            ("nynorsk", "nn"),
        ],
        *[("Norwegian Bokmål", "no"), ("norwegian bokmal", "no"), ("Norwegian Bokma\u030al", "no"), ("Hebrew", "he")],
        *[("Javanese", "jw"), ("Tagalog", "tl"), ("Filipino", "tl"), ("Brazilian Portuguese", "pt")],
    ],
)
def test_english_names(name: str, code: str) -> None:
    assert match(name, *MANY) == code


def test_every_name_means_its_language_and_no_other() -> None:
    for tag, name in Locale("en").languages.items():
        code = tag.lower().replace("_", "-")
        if len(name) > 3:
            assert {match(name, code), match(name.upper(), code), match(name, *MANY, code)} == {code}, name


def test_what_is_taken_for_another_language() -> None:
    """All that a model of every language but the one asked for would answer to."""
    codes = [code for code in Locale("en").languages if "_" not in code]
    taken = {code: match(code, *(other for other in codes if other != code)) for code in codes}
    assert {code: other for code, other in taken.items() if other} == SAME


@pytest.mark.parametrize(("written", "spoken"), [("Ga", "gaa"), ("Kom", "bkm"), ("Oji-Cree", "oj")])
def test_a_name_that_is_another_languages_code_is_that_code(written: str, spoken: str) -> None:
    assert match(written, spoken) is None


@pytest.mark.parametrize("written", ["mandarin", "Mandarin", "en-GB", "xx", "TEOCHEW"])
def test_aliases_of_the_model_come_before_the_cores(written: str) -> None:
    aliases = {"mandarin": "cmn", "en-gb": "sco", "xx": "zh", "teochew": "nan"}
    assert match_language(written, ("zh", "en", "cmn", "sco", "nan"), aliases) == aliases[written.lower()]


def test_an_alias_does_not_hide_a_code() -> None:
    assert match_language("en", ("en", "de"), {"en": "de"}) == "en"


@pytest.mark.parametrize(
    "written",
    [
        *["xx", "english.", "en-", "-en", "en--US", "en-U", "en US", "e", "english\0", "en\0", "\0", "chi\0nese"],
        *["日本語", "🇬🇧", "\uff45\uff4e", "chi語nese", "Englisch", "zh-TW-TW", "zh-Hant-Hans", "en-USA", "en-12"],
        *["eng🙂lish", "caf\udce9", "en_US.UTF-8", "en;q=0.8", "en,de", "../en", "-", "_", "e" * 1_000_000],
        *["en-" * 300_000, "🇬🇧" * 250_000, "\0" * 1_000_000, " x " * 300_000, "\u0301" * 1_000_000],
    ],
    ids=lambda written: repr(written[:12]),
)
def test_anything_else_is_no_language_and_found_out_at_once(written: str) -> None:
    since = time.process_time()
    assert match(written, *MANY) is None
    assert time.process_time() - since < 0.5


@pytest.mark.parametrize("text", [None, "", " ", "\t\n", "auto", "AUTO", " Auto ", " " * 1_000_000])
def test_not_given(text: str | None) -> None:
    assert not is_given(text)
    assert text is None or match(text, *MANY) is None


parts = st.sampled_from([*MANY, "nb", "hakka", "Latn", "US", "419", "auto", "chinese", "-", "_", " "])
texts = st.text(max_size=20) | st.lists(parts, max_size=5).map("-".join) | st.lists(parts, max_size=5).map("".join)
code = st.from_regex(r"[a-z]{2,3}(-[a-z]{4})?", fullmatch=True) | st.sampled_from(MANY)
codes = st.lists(code, max_size=6, unique=True)


@given(texts, codes)
def test_any_text_is_a_code_of_the_model_or_nothing(text: str, spoken: list[str]) -> None:
    found = match(text, *spoken)
    assert found is None or (found in spoken and is_given(text))
    if found is not None:
        assert match(found, *spoken) == found


@given(st.sampled_from(MANY), st.sampled_from(["", "-Latn", "-Hant"]), st.sampled_from(["", "-US", "-419"]))
def test_case_and_separator_mean_nothing(language: str, script: str, region: str) -> None:
    tag = language + script + region
    variants = {tag, tag.upper(), tag.lower(), tag.replace("-", "_")}
    assert {match(variant, *MANY) for variant in variants} == {language}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        *[("en", "english"), ("EN", "english"), ("eng", "english"), ("zh", "chinese"), ("yue", "cantonese")],
        *[("jw", "javanese"), ("iw", "hebrew"), ("ht", "haitian creole"), ("no", "norwegian"), ("ro", "romanian")],
        *[("zh-xx", "chinese"), ("xx", "xx")],
    ],
)
def test_a_code_has_an_english_name(code: str, name: str) -> None:
    assert language_name(code) == name


def test_nothing_of_cldr_is_loaded_for_a_models_own_code() -> None:
    code = (
        "import sys, asr_core; from asr_core.languages import match_language;"
        "print(match_language('en', ('en',), {}), 'babel' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["en", "False"]
