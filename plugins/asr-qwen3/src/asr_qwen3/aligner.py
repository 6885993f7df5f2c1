"""Qwen3-ForcedAligner: when each word of any model's text was said, in one forward pass per clip."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen
from transformers import Qwen3ASRFeatureExtractor, Qwen3ASRForTokenClassification, Qwen3ASRProcessor
from transformers.models.qwen3_asr.processing_qwen3_asr import FORCED_ALIGNER_LANGUAGES, LANGUAGE_CODE_TO_NAME
from transformers.utils.import_utils import is_nagisa_available, is_soynlp_available

from asr_core import audio
from asr_core.checkpoints import WEIGHT_FILES, hub, load_module, read_json
from asr_core.errors import AudioTooLongError, CheckpointError, UnsupportedValueError
from asr_core.prompts import PromptTokenizer
from asr_core.types import Clip, Samples, UploadLimits, Word

REPOSITORY = "Qwen/Qwen3-ForcedAligner-0.6B-hf"

DIRECTORY = "ASR_QWEN3_ALIGNER"
"""Environment variable: a directory to read in place of :data:`REPOSITORY`."""

LANGUAGES = {code: name for code, name in LANGUAGE_CODE_TO_NAME.items() if name in FORCED_ALIGNER_LANGUAGES}
"""Those it was trained on, by code."""

SPLITTERS = {"ja": ("nagisa", is_nagisa_available), "ko": ("soynlp", is_soynlp_available)}
"""What finds the words of languages that do not tell them by spaces or single characters."""

FIELD = "timestamp_granularities"


@frozen(eq=False)
class ForcedAligner:
    """``module`` picks one of ``classes`` times, ``step_ms`` apart, for the start and the end of each word."""

    module: Qwen3ASRForTokenClassification = field(repr=False)
    processor: Qwen3ASRProcessor = field(repr=False)
    classes: int
    step_ms: float

    def align(self, clip: Clip, text: str, language: str | None) -> list[Word]:
        """Every word with the punctuation around it; where there is nothing but punctuation, that is one word.

        Raises:
            UnsupportedValueError: a language the model was not trained on, or whose splitter is not installed.
            AudioTooLongError: the clip ends behind the last time the model knows.
        """
        _check_language(language)
        end_ms = round(1000 * clip.duration)
        if end_ms > self.classes * self.step_ms:
            most = self.classes * self.step_ms / 1000
            raise AudioTooLongError(
                f"words of {clip.duration:.2f} s at once cannot be timed, {most:g} s are the most", layer="aligner"
            )
        inputs, (words,) = self.processor.prepare_forced_aligner_inputs(
            self._samples(clip),
            text,
            language,
            processor_kwargs={"sampling_rate": self.processor.feature_extractor.sampling_rate},
        )
        if not words:
            return [Word(0, end_ms, text)]
        (timed,) = self._decode(inputs, words)
        times = [(round(1000 * one["start_time"]), round(1000 * one["end_time"])) for one in timed]
        spelt = zip(with_length(times, end_ms, round(self.step_ms)), surfaces(text, words), strict=True)
        return [Word(start, end, surface) for (start, end), surface in spelt]

    def _decode(self, inputs: Any, words: list[str]) -> Any:
        inputs = inputs.to(self.module.device, self.module.dtype)
        logits = self.module(**inputs, use_cache=False).logits
        return self.processor.decode_forced_alignment(
            logits, inputs["input_ids"], [words], self.module.config.timestamp_token_id
        )

    def _samples(self, clip: Clip) -> Samples:
        rate = self.processor.feature_extractor.sampling_rate
        if clip.rate == rate:
            return clip.samples
        return audio.from_array(clip.samples, clip.rate, rate, UploadLimits(min_seconds=0.0)).samples


def open_aligner(device: str, dtype: str) -> ForcedAligner:
    """The aligner from the directory that ``ASR_QWEN3_ALIGNER`` names, else from the hub.

    Raises:
        CheckpointError: files missing, damaged, of another kind or out of reach.
    """
    directory = _directory()
    module = load_module(Qwen3ASRForTokenClassification, directory, dtype, device)
    processor = _processor(directory, module.config)
    return ForcedAligner(module, processor, module.config.num_labels, processor.timestamp_segment_time)


def surfaces(text: str, words: Sequence[str]) -> list[str]:
    """What stands in ``text`` for each of ``words``, which lack some of its characters, with nothing left out.

    What lies between two words goes to the first of them up to the last white space, to the second from there.
    """
    cuts, at, ended = [0], 0, 0
    for number, word in enumerate(words):
        start = at
        for position, letter in enumerate(word):
            if (found := text.find(letter, at)) < 0:
                break  # a splitter that writes letters its own way
            start = found if position == 0 else start
            at = found + 1
        if number:
            spaces = [place for place in range(ended, start) if text[place].isspace()]
            cuts.append(spaces[-1] + 1 if spaces else start)
        ended = at
    return [text[start:end].strip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def with_length(times: Sequence[tuple[int, int]], end_ms: int, step_ms: int) -> list[tuple[int, int]]:
    """Times within the clip; a word of no length takes a step before the next one starts, else after the last ended."""
    fitted: list[tuple[int, int]] = []
    bounds = [*(min(start, end_ms) for start, _ in times), end_ms]
    for number, (_, said_end) in enumerate(times):
        start, end = bounds[number], min(said_end, end_ms)
        if start == end:
            end = min(start + step_ms, bounds[number + 1])
        if start == end:
            start = max(start - step_ms, fitted[-1][1] if fitted else 0)
        fitted.append((start, end))
    return fitted


def _check_language(language: str | None) -> None:
    # Refused, not guessed: the model would answer with times for anything, and nobody could tell that they are wrong.
    if language is not None and language not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        raise UnsupportedValueError(
            f"words of the language {language!r} cannot be timed by this aligner, only of {known}", param=FIELD
        )
    package, is_available = SPLITTERS.get(language or "", ("", lambda: True))
    if not is_available():
        raise UnsupportedValueError(
            f"words of the language {language!r} can be timed once `pip install {package}` was run on the server",
            param=FIELD,
        )


def _directory() -> Path:
    chosen = os.environ.get(DIRECTORY)
    if not chosen:
        ways = (f"set {DIRECTORY} to a directory that holds it",)
        return hub.fetch_all(REPOSITORY, WEIGHT_FILES, ways=ways)
    directory = Path(chosen)
    if (
        not (directory / "config.json").is_file()
        or read_json(directory / "config.json").get("model_type") != "qwen3_asr"
    ):
        raise CheckpointError(f"{DIRECTORY} is {chosen}, where no config.json tells of a Qwen3-ForcedAligner")
    return directory


def _processor(directory: Path, config: Any) -> Any:
    """The processor, once it is seen to go with the model and to keep a text from becoming special tokens."""
    try:
        processor = Qwen3ASRProcessor.from_pretrained(directory, local_files_only=True)
        # By class, whatever the file names, as for the models.
        processor.feature_extractor = Qwen3ASRFeatureExtractor.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # transformers, tokenizers and json each have their own tree
        raise CheckpointError(f"{directory}: tokenizer or feature extractor cannot be read: {error}") from error
    special = PromptTokenizer(processor.tokenizer.backend_tokenizer).special
    if config.timestamp_token_id not in special.values():
        raise CheckpointError(f"{directory}: the tokenizer does not have the model's token for times")
    # Words reach the template as letters, digits and apostrophes alone, so no other token can be spelt by one.
    if spelt := [token for token in special if token.replace("'", "").isalnum()]:
        raise CheckpointError(f"{directory}: words may become the special tokens {', '.join(sorted(spelt))}")
    return processor
