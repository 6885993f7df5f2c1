"""CTranslate2's ``model.bin``: an index of what is in it, read by seeking from header to header.

The file is a sequence of named arrays, each behind its own small header, so the index costs one seek per array and the
weights are not touched. Nothing is allocated by a number from the file before that number was held against its size.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from math import prod
from typing import BinaryIO

from attrs import frozen

from asr_core.errors import CheckpointError
from asr_whisper.config import HEAD_WIDTH, Dimensions
from asr_whisper.source import Source

SPEC = "WhisperSpec"

_VERSIONS = range(4, 7)  # 4 to 6 lay variables out alike; 3 and older had no data types and predate Whisper
_TYPES = {0: "float32", 1: "int8", 2: "int16", 3: "int32", 4: "float16", 5: "bfloat16"}
_BYTES = {"float32": 4, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "bfloat16": 2}

# large-v3 quantised to int8 has 1,600 variables, and no name over 60 characters
_MAX_VARIABLES = 16_384
_MAX_NAME = 512
_MAX_RANK = 8

# Scalars that change what the network computes, with the one value all Whisper conversions have.
_FIXED = {
    "decoder/activation": 3,  # GELU by the error function
    "decoder/alibi": 0,
    "decoder/pre_norm": 1,
    "decoder/scale_embeddings": 0,
    "decoder/start_from_zero_embedding": 0,
}


@frozen
class Variable:
    """One array in the file: ``size`` bytes at ``offset``, already known to lie inside it and to fit ``shape``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    size: int


class _Reader:
    """Little-endian fields from a stream whose length is known, with a position in every complaint."""

    def __init__(self, stream: BinaryIO, size: int, name: str) -> None:
        self.stream, self.size, self.name = stream, size, name
        self.position = 0

    def fail(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.name} is damaged at byte {self.position}: {what}")

    def take(self, count: int) -> bytes:
        self.require(count)
        data = self.stream.read(count)
        if len(data) != count:
            raise self.fail("the file became shorter while it was read")
        self.position += count
        return data

    def require(self, count: int) -> None:
        if count > self.size - self.position:
            raise self.fail(f"{count} more bytes announced, {self.size - self.position} left")

    def skip(self, count: int) -> None:
        self.require(count)
        self.position += count
        self.stream.seek(self.position)

    def number(self, code: str) -> int:
        value: int
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))
        return value

    def count(self, what: str) -> int:
        value = self.number("I")
        if value > _MAX_VARIABLES:
            raise self.fail(f"{value} {what} announced, at most {_MAX_VARIABLES} are read")
        return value

    def string(self) -> str:
        length = self.number("H")
        if not 1 <= length <= _MAX_NAME:
            raise self.fail(f"a name of {length} bytes")
        data = self.take(length)
        if data[-1] or not data[:-1].isascii():
            raise self.fail("a name that is not zero-terminated ASCII")
        return data[:-1].decode("ascii")

    def variable(self) -> Variable:
        name, rank = self.string(), self.number("B")
        if rank > _MAX_RANK:
            raise self.fail(f"{name} has {rank} dimensions")
        shape = struct.unpack(f"<{rank}I", self.take(4 * rank))
        code, size = self.number("B"), self.number("I")
        dtype = _TYPES.get(code)
        if dtype is None:
            raise self.fail(f"{name} has unknown data type {code}")
        # Python's integers do not overflow, so no choice of dimensions can wrap round to a harmless product.
        if prod(shape) * _BYTES[dtype] != size:
            raise self.fail(f"{name} is {shape} of {dtype}, but has {size} bytes")
        offset = self.position
        self.skip(size)
        return Variable(name, shape, dtype, offset, size)


def is_whisper(source: Source) -> bool:
    """Whether the file begins like a CTranslate2 Whisper, whatever is wrong with the rest."""
    name = SPEC.encode() + b"\0"
    with source.open() as stream:
        return stream.read(6 + len(name))[4:] == struct.pack("<H", len(name)) + name


@frozen
class Index:
    """What is in a ``model.bin``, by name; aliases are resolved and appear like variables."""

    source: Source
    variables: Mapping[str, Variable]

    @classmethod
    def read(cls, source: Source) -> Index:
        """Read all headers and no weight.

        Raises:
            CheckpointError: not a Whisper, of an unknown version, or damaged; the message has the position.
        """
        with source.open() as stream:
            reader = _Reader(stream, source.size(), source.name)
            version = reader.number("I")
            if version not in _VERSIONS:
                raise reader.fail(f"binary version {version} is not one of {_VERSIONS[0]} to {_VERSIONS[-1]}")
            spec, _revision = reader.string(), reader.number("I")
            if spec != SPEC:
                raise CheckpointError(f"{source.name} holds a {spec}, not a {SPEC}")
            return cls(source, _variables(reader))

    def scalar(self, name: str) -> int | None:
        """The value of an integer attribute, None where the file has none (older converters wrote fewer)."""
        variable = self.variables.get(name)
        if variable is None:
            return None
        if variable.shape or not variable.dtype.startswith("int"):
            raise CheckpointError(f"{self.source.name}: {name} is not an integer")
        with self.source.open() as stream:
            stream.seek(variable.offset)
            return int.from_bytes(stream.read(variable.size), "little", signed=True)

    def dimensions(self) -> Dimensions:
        """Dimensions as the shapes of the weights imply them; heads, which they do not, from an attribute.

        Raises:
            CheckpointError: a weight is missing, of the wrong rank, or an attribute asks for another architecture.
        """
        for name, expected in _FIXED.items():
            if (value := self.scalar(name)) not in (None, expected):
                raise CheckpointError(f"{self.source.name}: {name} is {value}, a Whisper has {expected}")
        width, mels, _ = self._shape("encoder/conv1/weight", 3)
        vocabulary, text_width = self._shape("decoder/embeddings/weight", 2)
        return Dimensions(
            mels=mels,
            audio_layers=self._layers("encoder"),
            audio_width=width,
            audio_heads=self.scalar("encoder/num_heads") or width // HEAD_WIDTH,
            audio_context=self._shape("encoder/position_encodings/encodings", 2)[0],
            text_layers=self._layers("decoder"),
            text_width=text_width,
            text_heads=self.scalar("decoder/num_heads") or text_width // HEAD_WIDTH,
            text_context=self._shape("decoder/position_encodings/encodings", 2)[0],
            vocabulary=vocabulary,
            audio_hidden=self._shape("encoder/layer_0/ffn/linear_0/weight", 2)[0],
            text_hidden=self._shape("decoder/layer_0/ffn/linear_0/weight", 2)[0],
        )

    def _shape(self, name: str, rank: int) -> tuple[int, ...]:
        variable = self.variables.get(name)
        if variable is None or len(variable.shape) != rank:
            raise CheckpointError(f"{self.source.name} has no {name} of {rank} dimensions")
        return variable.shape

    def _layers(self, side: str) -> int:
        found = (re.match(rf"{side}/layer_(\d{{1,5}})/", name) for name in self.variables)
        return len({match[1] for match in found if match})


def _variables(reader: _Reader) -> dict[str, Variable]:
    variables: dict[str, Variable] = {}
    for _ in range(reader.count("variables")):
        variable = reader.variable()
        if variable.name in variables:
            raise reader.fail(f"{variable.name} appears twice")
        variables[variable.name] = variable
    for _ in range(reader.count("aliases")):
        alias, name = reader.string(), reader.string()
        # An alias may only point back, so that there can be no loop.
        if alias in variables or name not in variables:
            raise reader.fail(f"alias {alias} of {name}: one exists already or the other does not")
        variables[alias] = variables[name]
    if reader.position != reader.size:
        raise reader.fail(f"{reader.size - reader.position} bytes are left over")
    return variables
