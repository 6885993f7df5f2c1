"""The files of an installed package of weights in one directory, as CTranslate2 and faster-whisper want them."""

from __future__ import annotations

import shutil
from pathlib import Path

from asr_whisper.packages import find_package


def save(model: str, directory: Path) -> Path:
    """Write those of ``model`` to ``directory``, which is made."""
    package = find_package(model)
    sources = package and package.locate()
    assert sources, f"{model} is not installed"
    directory.mkdir(parents=True)
    for source, name in zip(sources, ("model.bin", "config.json", "tokenizer.json"), strict=True):
        with (directory / name).open("wb") as whole:
            for part in source.parts:
                shutil.copyfileobj(part.open("rb"), whole)
    shutil.copy(sources[1].parts[0].parent / "vocabulary.txt", directory)
    return directory
