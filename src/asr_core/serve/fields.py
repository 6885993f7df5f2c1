"""The fields of a request: how each is called, what it may hold, and how its text is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from attrs import frozen
from starlette.datastructures import FormData

from asr_core.admission import MAX_TEMPERATURE
from asr_core.errors import InvalidRequestError
from asr_core.serve.form import FIELD_SHOWN, FILE
from asr_core.types import OptionSpec

Type = Literal["string", "integer", "number", "boolean", "audio", "file", "strategy"]


@frozen
class Field:
    """One field; a ``repeated`` one is a list of at most ``most`` values, under ``name`` or ``name[]``."""

    name: str
    summary: str
    type: Type = "string"
    repeated: bool = False
    choices: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    most: int | None = None

    @classmethod
    def of(cls, option: OptionSpec) -> Field:
        """The field that a plugin's option is over HTTP."""
        return cls(option.name, option.summary, option.type, choices=option.choices)

    def owns(self, key: str) -> bool:
        """Whether a part called ``key`` belongs to this field."""
        if self.type == "strategy":
            return key.partition("[")[0] == self.name
        return key == self.name or (self.repeated and key == f"{self.name}[]")

    def read(self, text: str) -> Any:
        """The value that ``text`` spells.

        Raises:
            InvalidRequestError: it spells none of this field's type, range or choices.
        """
        try:
            value = _READ[self.type](text)
            if self.type in ("integer", "number") and not self.low <= value <= self.high:
                raise ValueError(f"{self.low:g} to {self.high:g}" if self.high < math.inf else f"at least {self.low:g}")
            if self.choices and value not in self.choices:
                raise ValueError(f"one of {', '.join(self.choices)}")
        except ValueError as error:
            message = f"{self.name} must be {error}, not {text[:FIELD_SHOWN]!r}"
            raise InvalidRequestError(message, param=self.name) from error
        return value


FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field(FILE, "The sound itself; what it is, is read from its bytes.", "file"),
        Field("model", "Name, alias or checkpoint of a served model."),
        Field("language", "What is spoken, as a code, a tag or an English name; left out or `auto`, it is detected."),
        Field("languages", "Among which languages to detect, where the model can.", repeated=True),
        Field("prompt", "Context in the meaning the model gives it."),
        Field("keywords", "Words to expect, where the model takes them.", repeated=True),
        Field("response_format", "The shape of the answer."),
        Field(
            "temperature",
            "Of sampling; 0 is greedy, left out it is the model's own way.",
            "number",
            low=0.0,
            high=MAX_TEMPERATURE,
        ),
        Field("include", "What to add to a json answer.", repeated=True, choices=("logprobs",)),
        Field(
            "timestamp_granularities",
            "What a verbose_json answer gives times for; segments when left out.",
            repeated=True,
            choices=("segment", "word"),
        ),
        Field("stream", "Whether to answer by events while work goes on.", "boolean"),
        Field(
            "chunking_strategy",
            "How long sound is cut: `auto` leaves it to the server, `server_vad` cuts at pauses.",
            "strategy",
        ),
        Field("known_speaker_names", "No model takes known speakers yet.", repeated=True, most=4),
        Field("known_speaker_references", "No model takes known speakers yet.", repeated=True, most=4),
    )
}
"""All that OpenAI documents, by name."""


@frozen
class Given:
    """The text fields of a form; one left empty counts as not given."""

    form: FormData

    def check_known(self, fields: Iterable[Field]) -> None:
        """Refuse parts that belong to none of ``fields``.

        Raises:
            InvalidRequestError: the message lists the names that are known.
        """
        known = {field.name: field for field in fields}
        for key in self.form:
            if not any(field.owns(key) for field in known.values()):
                shown = key[:FIELD_SHOWN]
                message = f"Unknown parameter: {shown!r}; known are {', '.join(sorted(known))}"
                raise InvalidRequestError(message, param=shown, code="unknown_parameter")

    def value(self, field: Field) -> Any:
        """What ``field`` holds: None, or a tuple for a repeated one, where it is not given.

        Raises:
            InvalidRequestError: it is no text, too often there, or not what the field may hold.
        """
        texts = self._texts(field)
        if field.repeated:
            if field.most is not None and len(texts) > field.most:
                raise InvalidRequestError(f"{field.name} takes at most {field.most} values", param=field.name)
            return tuple(field.read(text) for text in texts if text)
        if len(texts) > 1:
            raise InvalidRequestError(f"{field.name} is given more than once", param=field.name)
        return next((field.read(text) for text in texts if text), None)

    def require(self, field: Field) -> Any:
        """The same of one that must be there."""
        value = self.value(field)
        if value is None:
            message = f"you must provide {field.name}"
            raise InvalidRequestError(message, param=field.name, code="missing_required_parameter")
        return value

    def _texts(self, field: Field) -> tuple[str, ...]:
        values = [value for key, value in self.form.multi_items() if field.owns(key)]
        texts = tuple(value for value in values if isinstance(value, str))
        if len(texts) < len(values):
            raise InvalidRequestError(f"{field.name} must be text, not a file", param=field.name)
        return texts


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(number):
        raise ValueError("a finite number")
    return number


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("an integer") from None


def _boolean(text: str) -> bool | None:
    # Clients write what their language calls nothing.
    known = {"true": True, "false": False, "null": None}
    if text.lower() not in known:
        raise ValueError("true or false")
    return known[text.lower()]


def _audio(text: str) -> bytes:
    raise ValueError("left out, as audio options are not offered yet")


_READ: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "audio": _audio,
}
