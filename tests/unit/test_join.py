"""The seam table: two characters decide."""

from __future__ import annotations

import pytest

from asr_core.longform import join_texts


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["Good", "morning."], "Good morning."),
        (["你好", "世界"], "你好世界"),
        (["これは", "ペンです"], "これはペンです"),
        (["안녕", "하세요"], "안녕 하세요"),
        (["สวัสดี", "ครับ"], "สวัสดีครับ"),
        (["ສະບາຍ", "ດີ"], "ສະບາຍດີ"),
        (["မြန်", "မာ"], "မြန်မာ"),
        (["ភាសា", "ខ្មែរ"], "ភាសាខ្មែរ"),
        (["Доброе", "утро"], "Доброе утро"),
        (["صباح", "الخير"], "صباح الخير"),
        (["नमस्ते", "दुनिया"], "नमस्ते दुनिया"),
        (["我用", "Python"], "我用Python"),
        (["end。", "start"], "end。start"),
        ([" a ", "", "  ", "b"], "a b"),
        ([], ""),
        (["𠮷", "野"], "𠮷野"),
    ],
)
def test_seams(texts: list[str], joined: str) -> None:
    assert join_texts(texts) == joined
