"""A small byte-level tokenizer for tests: trained in a blink, and characters split over several tokens everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_CORPUS = (
    "the quick brown fox jumps over the lazy dog and nobody heard what she said about it",
    "language English language Chinese language German language French language None",
    "You are a helpful assistant. user system assistant",
    "语音转写成中文 热词列表 请将音频转写为文本 每一段需以起始时间戳和说话人编号开头",
    "der schnelle braune Fuchs springt über den faulen Hund",
    "0.00 1.25 12.50 S01 S02 2 4 6 8 10 12 14 16",
)


def train_tokenizer(special: Sequence[str], added: Sequence[str] = (), *, merges: int = 200) -> Any:
    """A byte-level BPE of the library ``tokenizers``: 256 bytes, ``merges`` merges, then the tokens by name.

    ``special`` are flagged as such and skipped when decoding on demand; ``added`` are matched in text all the same, but
    are not special.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in added])
    return tokenizer
