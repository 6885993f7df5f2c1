"""The README's table of models is what the installed plugins say of themselves.

``ASR_CORE_WRITE_TABLE=1 pytest tests/docs/test_model_table.py`` writes it anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from asr_core.cli import main

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- models: written by tests/docs/test_model_table.py -->\n", "<!-- end of models -->\n"


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | takes at once | languages | can, beyond transcribing |", "|---|---|---|---|"]
    for row in rows:
        languages = row["languages"]
        said = f"{len(languages)}" if len(languages) > 3 else ", ".join(languages) or "its own choice"
        lines.append(f"| `{row['name']}` | {length(row['clip_seconds'])} | {said} | {', '.join(row['can'])} |")
    return "\n".join(lines) + "\n"


def length(seconds: float | None) -> str:
    if seconds is None:
        return "any length"
    return f"{seconds:g} s" if seconds <= 60 else f"{seconds / 60:g} min"


def test_the_table_is_what_the_plugins_say() -> None:
    found = CliRunner().invoke(main, ["models", "--json"])
    assert found.exit_code == 0
    before, _, rest = README.read_text().partition(BEGIN)
    written, _, after = rest.partition(END)
    told = table(json.loads(found.stdout))
    if "ASR_CORE_WRITE_TABLE" in os.environ:
        README.write_text(before + BEGIN + told + END + after)
        written = told
    assert written == told
