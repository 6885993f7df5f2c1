"""The core knows no model: not in a word, not in a branch."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import asr_core
from asr_core.plugins import Plugins

CORE = Path(asr_core.__file__).parent
PLUGINS = Path(__file__).parents[2] / "plugins"
SOURCES = sorted(CORE.rglob("*.py"))

# What plugins are called, and the kinds of models that exist; installed cards add their names and aliases.
KNOWN = {
    "whisper",
    "qwen",
    "qwen3",
    "funasr",
    "moss",
    "sensevoice",
    "paraformer",
    "wav2vec2",
    "nemotron",
    "ctranslate2",
}
ORDINARY = {
    *("tiny", "base", "small", "medium", "large", "turbo", "nano", "en"),
    *("asr", "fun", "transcribe", "diarize"),
}
"""Sizes and tasks are English words; only in a model's whole name do they mean one."""


def words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}[0-9]*", name.lower())) - ORDINARY


@pytest.fixture(scope="module")
def model_words() -> set[str]:
    distributions = {path.parent.name.removeprefix("asr-") for path in PLUGINS.glob("*/pyproject.toml")}
    cards = {name for card in Plugins.discover().models() for name in (card.name, *card.aliases)}
    return KNOWN | distributions | cards.union(*map(words, cards))


def texts(source: Path) -> Iterator[tuple[int, str]]:
    """Every identifier, string and comment with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source.read_text()).readline):
        if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_no_model_is_mentioned(source: Path, model_words: set[str]) -> None:
    mentioned = re.compile(rf"(?<![a-z])({'|'.join(sorted(map(re.escape, model_words)))})(?![a-z])", re.IGNORECASE)
    found = [f"{source.name}:{line}: {text[:80]}" for line, text in texts(source) if mentioned.search(text)]
    assert found == []


def names_a_model(node: ast.expr) -> bool:
    """``card.name``, ``checkpoint.model``, ``served.card.aliases`` and their like."""
    return isinstance(node, ast.Attribute) and (
        (node.attr in {"name", "aliases"} and ast.unparse(node.value).split(".")[-1] == "card")
        or (node.attr == "model" and ast.unparse(node.value).split(".")[-1] == "checkpoint")
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_no_behaviour_hangs_on_a_models_name(source: Path) -> None:
    """No comparison of a name with a literal, no look-up in a literal table, no match on it."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            literal = any(isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) for leaf in sides)
            collection = any(isinstance(leaf, ast.Set | ast.Tuple | ast.List | ast.Dict) for leaf in sides)
            assert not ((literal or collection) and any(map(names_a_model, sides))), ast.unparse(node)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            assert not names_a_model(node.slice), ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            prefix = node.func.attr in {"startswith", "endswith"} and names_a_model(node.func.value)
            assert not prefix, ast.unparse(node)
        if isinstance(node, ast.Match):
            assert not names_a_model(node.subject), ast.unparse(node)


@pytest.mark.parametrize(
    "branch",
    ["card.name == 'x'", "served.card.name in ('x', 'y')", "checkpoint.model == 'x'", "card.name.startswith('x')"],
)
def test_a_branch_on_a_name_would_be_found(branch: str, tmp_path: Path) -> None:
    source = tmp_path / "branch.py"
    source.write_text(f"if {branch}: ...\n")
    with pytest.raises(AssertionError):
        test_no_behaviour_hangs_on_a_models_name(source)
