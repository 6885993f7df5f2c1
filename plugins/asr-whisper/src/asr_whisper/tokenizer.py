"""The tokenizer that belongs to a checkpoint, and the ids in it that steer the model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen
from tokenizers import Tokenizer

from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint
from asr_whisper import hub
from asr_whisper.config import WhisperConfig
from asr_whisper.names import CARDS, DIMENSIONS
from asr_whisper.packages import PACKAGES
from asr_whisper.source import Source

_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
_NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")  # the second in files converted from the first release

# What subtitles write and nobody says: the list OpenAI's decoder suppresses, by text instead of by id.
_PAIRS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
_SYMBOLS = (*'"#()*+/:;<=>@[\\]^_`{|}~「」『』', *_PAIRS.split())
_NOTES = "♩♪♫♬♭♮♯"  # several tokens each, of which the first already is never speech


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's own tokenizer, else one of the same vocabulary size from a weight package or the hub.

    Raises:
        CheckpointError: none found, damaged, of another hash, or with more tokens than the model has embeddings.
    """
    config: WhisperConfig = checkpoint.config
    tokenizer = _own(config) or _parse(_foreign(config))
    if tokenizer.get_vocab_size() > config.dims.vocabulary:
        raise CheckpointError(
            f"{checkpoint.reference}: the tokenizer has {tokenizer.get_vocab_size()} tokens, "
            f"the model {config.dims.vocabulary}"
        )
    return tokenizer


def _own(config: WhisperConfig) -> Tokenizer | None:
    if config.tokenizer:
        return _parse(config.tokenizer)
    if config.directory:
        return _convert(config.directory)
    path = hub.fetch(str(config.repository), "tokenizer.json", online=hub.reachable())
    return _parse(Source((path,))) if path else None


def _parse(source: Source) -> Tokenizer:
    data = source.read()
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # tokenizers raises Exception itself
        raise CheckpointError(f"{source.name} is not a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _mended(tokenizer)


def _mended(tokenizer: Tokenizer) -> Tokenizer:
    """Copies from before 2024 lack the first merge, so that " the" falls apart (transformers' pull request 29368)."""
    if tokenizer.token_to_id("Ġt") is None or len(tokenizer.encode(" t", add_special_tokens=False).ids) == 1:
        return tokenizer
    content = json.loads(tokenizer.to_str())
    content["model"]["merges"].insert(0, ["Ġ", "t"])
    return Tokenizer.from_str(json.dumps(content))


def _convert(directory: Path) -> Tokenizer | None:
    """From vocab.json and merges.txt, all that checkpoints saved before 2023 have."""
    if not all((directory / name).is_file() for name in ("vocab.json", "merges.txt")):
        return None
    from transformers import WhisperTokenizer

    try:
        slow = WhisperTokenizer.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # from half a dozen libraries, all meaning that these files do not go together
        raise CheckpointError(f"{directory}: vocab.json and merges.txt cannot be read: {error}") from error
    tokenizer: Tokenizer = slow.backend_tokenizer
    return _mended(tokenizer)


def _foreign(config: WhisperConfig) -> Source:
    size = config.dims.vocabulary
    models = {card.name: card.checkpoints[0] for card in CARDS if DIMENSIONS[card.name].vocabulary == size}
    if not models:
        raise CheckpointError(f"no tokenizer.json beside the weights, and none of {size} tokens is known")
    for package in PACKAGES:
        if package.model in models and (sources := package.locate()):
            return sources[2]
    repository = next(iter(models.values()))
    path = hub.fetch(repository, "tokenizer.json", online=hub.reachable())
    if path is None:
        raise hub.unavailable(repository, "it has no tokenizer.json; one may be put beside the weights")
    return Source((path,))


@frozen
class SpecialTokens:
    """Ids that are not text. ``languages`` maps codes (``en``, ``haw``) to ids in vocabulary order.

    It is empty for English-only models: their vocabulary has the tokens, but the models were trained without.
    Timestamps are the ids from ``timestamp_begin`` (0.00 s) on, one per 20 ms; many tokenizers have no text for them.
    """

    sot: int
    eot: int
    translate: int
    transcribe: int
    previous: int
    no_timestamps: int
    no_speech: int
    timestamp_begin: int
    languages: Mapping[str, int] = field(repr=False)

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, multilingual: bool) -> SpecialTokens:
        """Read them from the vocabulary.

        Raises:
            CheckpointError: the tokenizer lacks one, so it is not Whisper's.
        """
        no_timestamps = _id(tokenizer, "<|notimestamps|>")
        return cls(
            sot=_id(tokenizer, "<|startoftranscript|>"),
            eot=_id(tokenizer, "<|endoftext|>"),
            translate=_id(tokenizer, "<|translate|>"),
            transcribe=_id(tokenizer, "<|transcribe|>"),
            previous=_id(tokenizer, "<|startofprev|>"),
            no_timestamps=no_timestamps,
            no_speech=_no_speech(tokenizer, no_timestamps),
            timestamp_begin=no_timestamps + 1,
            languages=_languages(tokenizer) if multilingual else {},
        )


def _id(tokenizer: Tokenizer, token: str) -> int:
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise CheckpointError(f"not a tokenizer of Whisper: it has no {token}")
    return found


def _no_speech(tokenizer: Tokenizer, no_timestamps: int) -> int:
    """By place, since its name changed; asking by the wrong name gives the end of text in some libraries."""
    if tokenizer.id_to_token(no_timestamps - 1) not in _NO_SPEECH:
        raise CheckpointError(
            f"not a tokenizer of Whisper: token {no_timestamps - 1} is none of {', '.join(_NO_SPEECH)}"
        )
    return no_timestamps - 1


def _languages(tokenizer: Tokenizer) -> Mapping[str, int]:
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    return {match[1]: token for token, value in added if (match := _LANGUAGE.fullmatch(value.content))}


@frozen
class Suppression:
    """Ids that may never be generated, and those that may not come first."""

    always: tuple[int, ...]
    at_begin: tuple[int, ...]

    @classmethod
    def of(cls, config: WhisperConfig, tokenizer: Tokenizer) -> Suppression:
        """What the checkpoint says; where it says nothing (OpenAI's files), OpenAI's own default."""
        always, at_begin = config.hints.suppress, config.hints.suppress_at_begin
        return cls(
            _not_speech(tokenizer) if always is None else always,
            (_first(tokenizer, " "), _id(tokenizer, "<|endoftext|>")) if at_begin is None else at_begin,
        )


def _not_speech(tokenizer: Tokenizer) -> tuple[int, ...]:
    special = SpecialTokens.of(tokenizer, multilingual=False)
    ids = {special.sot, special.translate, special.transcribe, special.previous, special.no_speech}
    ids.add(_id(tokenizer, "<|startoflm|>"))
    ids.update(_first(tokenizer, text) for text in (" -", " '"))
    for symbol in (*_SYMBOLS, *_NOTES):
        for text in (symbol, f" {symbol}"):
            tokens = tokenizer.encode(text, add_special_tokens=False).ids
            if len(tokens) == 1 or symbol in _NOTES:
                ids.add(tokens[0])
    return tuple(sorted(ids))


def _first(tokenizer: Tokenizer, text: str) -> int:
    first: int = tokenizer.encode(text, add_special_tokens=False).ids[0]
    return first
