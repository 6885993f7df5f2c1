"""What a config.json says of the sizes that steer this plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import Attribute, field, frozen

from asr_core.errors import CheckpointError

SAMPLE_RATE = 16_000
"""Of every checkpoint; no config.json has a field for it, so the feature extractor must agree."""

FRAMES_PER_POSITION = 2
"""The second convolution of the encoder has stride 2."""

# Several times what is published: a file may lie, but not make a request count blocks for ever.
_MAX = 1 << 30


def _positive(_: MossConfig, attribute: Attribute[int], value: object) -> None:
    # bool is an int to Python, not to a file format
    if type(value) is not int or not 0 < value < _MAX:
        raise CheckpointError(f"not a configuration of MOSS: {attribute.name} is {value!r}, expected a positive number")


def _size() -> Any:
    return field(validator=_positive)


@frozen
class MossConfig:
    """``block`` is the encoder's window in samples, ``merge`` the positions that make one row for the language model.

    Raises:
        CheckpointError: a size is no positive integer, or a block no whole number of frames and rows.
    """

    block: int = _size()
    merge: int = _size()
    positions: int = _size()
    mels: int = _size()
    context: int = _size()
    audio_token: int = _size()

    def __attrs_post_init__(self) -> None:
        if self.block % (self.positions * FRAMES_PER_POSITION) or self.positions % self.merge:
            raise CheckpointError(
                f"not a configuration of MOSS: {self.block} samples, {self.positions} positions and rows of "
                f"{self.merge} do not divide"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> MossConfig:
        """Read config.json; what it leaves out has transformers' defaults."""
        audio, text = (_section(values, name) for name in ("audio_config", "text_config"))
        return cls(
            block=values.get("audio_chunk_size", 480_000),
            merge=values.get("audio_merge_size", 4),
            positions=audio.get("max_source_positions", 1500),
            mels=audio.get("num_mel_bins", 80),
            # Without any text_config it is MOSS's own default, within one it is Qwen3's.
            context=text.get("max_position_embeddings", 32_768 if text else 131_072),
            audio_token=values.get("audio_token_id", 151_671),
        )

    @property
    def hop(self) -> int:
        """Samples per mel frame."""
        return self.block // (self.positions * FRAMES_PER_POSITION)

    @property
    def rows_per_second(self) -> float:
        """Rows of encoded audio that the language model reads."""
        return SAMPLE_RATE / (self.hop * FRAMES_PER_POSITION * self.merge)

    def frames(self, samples: int) -> int:
        """Mel frames of so many samples of one block, the last one perhaps in part."""
        return -(-samples // self.hop)

    def rows(self, frames: int) -> int:
        """Rows of so many frames of one block, which ends in a row of its own however few positions are left."""
        return -(-frames // (FRAMES_PER_POSITION * self.merge))


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name) or {}
    if not isinstance(section, Mapping):
        raise CheckpointError(f"not a configuration of MOSS: {name} is {section!r}")
    return section
