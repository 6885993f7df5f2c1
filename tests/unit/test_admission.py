"""What a model cannot do is refused, naming the field."""

from __future__ import annotations

import pytest

from asr_core.admission import check_request
from asr_core.errors import InvalidRequestError, UnsupportedValueError
from asr_core.types import Capabilities, OptionSpec, TranscriptionRequest

ABLE = Capabilities(
    tasks=frozenset({"transcribe", "translate"}),
    languages=("de", "en"),
    segment_times=True,
    prompt="vocabulary",
    keywords=True,
    temperature=True,
    options=(OptionSpec("beams", "integer", ""), OptionSpec("loud", "boolean", ""), OptionSpec("gain", "number", "")),
)


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (TranscriptionRequest(task="translate"), "task"),
        (TranscriptionRequest(language="de"), "language"),
        (TranscriptionRequest(times=frozenset({"segment"})), "timestamp_granularities"),
        (TranscriptionRequest(prompt="x"), "prompt"),
        (TranscriptionRequest(keywords=("x",)), "keywords"),
        (TranscriptionRequest(temperature=0.5), "temperature"),
        (TranscriptionRequest(options={"beams": 5}), "beams"),
    ],
)
def test_a_model_that_can_do_nothing_special_refuses_by_field(request_: TranscriptionRequest, param: str) -> None:
    with pytest.raises(UnsupportedValueError, match="model 'plain'") as raised:
        check_request("plain", Capabilities(), request_)
    assert raised.value.param == param


@pytest.mark.parametrize("field", ["prompt", "keywords"])
def test_half_characters_are_refused(field: str) -> None:
    broken = b"caf\xe9".decode(errors="surrogateescape")
    request = TranscriptionRequest(**{field: broken if field == "prompt" else ("fine", broken)})
    with pytest.raises(InvalidRequestError, match="Unicode") as raised:
        check_request("able", ABLE, request)
    assert raised.value.param == field


@pytest.mark.parametrize("temperature", [float("nan"), float("inf"), -0.1, 1.01])
def test_temperatures_out_of_range_are_refused(temperature: float) -> None:
    with pytest.raises(InvalidRequestError, match="0 to 1") as raised:
        check_request("able", ABLE, TranscriptionRequest(temperature=temperature))
    assert raised.value.param == "temperature"


@pytest.mark.parametrize(("option", "value"), [("beams", "5"), ("beams", True), ("loud", 1), ("gain", "1.0")])
def test_options_of_another_type_are_refused(option: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match="must be of type"):
        check_request("able", ABLE, TranscriptionRequest(options={option: value}))


def test_an_unknown_language_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedValueError, match="it knows de, en"):
        check_request("able", ABLE, TranscriptionRequest(language="xx"))


def test_what_it_can_do_passes() -> None:
    check_request(
        "able",
        ABLE,
        TranscriptionRequest(
            "translate", "de", "p", ("k",), 0.5, frozenset({"segment"}), {"beams": 5, "loud": True, "gain": 1}
        ),
    )
