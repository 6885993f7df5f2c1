"""What a model cannot do is refused, naming the field."""

from __future__ import annotations

import pytest
from attrs import evolve

from asr_core.admission import admit
from asr_core.engines.embedded import TORCH
from asr_core.errors import EngineMismatchError, InvalidRequestError, UnsupportedValueError
from asr_core.loading import served_capabilities
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
        (TranscriptionRequest(languages=("de",)), "languages"),
        (TranscriptionRequest(times=frozenset({"segment"})), "timestamp_granularities"),
        (TranscriptionRequest(times=frozenset({"word"})), "timestamp_granularities"),
        (TranscriptionRequest(prompt="x"), "prompt"),
        (TranscriptionRequest(keywords=("x",)), "keywords"),
        (TranscriptionRequest(temperature=0.5), "temperature"),
        (TranscriptionRequest(options={"beams": 5}), "beams"),
    ],
)
def test_a_model_that_can_do_nothing_special_refuses_by_field(request_: TranscriptionRequest, param: str) -> None:
    with pytest.raises(UnsupportedValueError, match="model 'plain'") as raised:
        admit("plain", Capabilities(), request_)
    assert raised.value.param == param


@pytest.mark.parametrize("field", ["prompt", "keywords"])
def test_half_characters_are_refused(field: str) -> None:
    broken = b"caf\xe9".decode(errors="surrogateescape")
    request = TranscriptionRequest(**{field: broken if field == "prompt" else ("fine", broken)})
    with pytest.raises(InvalidRequestError, match="Unicode") as raised:
        admit("able", ABLE, request)
    assert raised.value.param == field


@pytest.mark.parametrize("temperature", [float("nan"), float("inf"), -0.1, 1.01])
def test_temperatures_out_of_range_are_refused(temperature: float) -> None:
    with pytest.raises(InvalidRequestError, match="0 to 1") as raised:
        admit("able", ABLE, TranscriptionRequest(temperature=temperature))
    assert raised.value.param == "temperature"


@pytest.mark.parametrize(("option", "value"), [("beams", "5"), ("beams", True), ("loud", 1), ("gain", "1.0")])
def test_options_of_another_type_are_refused(option: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match="must be of type"):
        admit("able", ABLE, TranscriptionRequest(options={option: value}))


def test_an_unknown_language_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedValueError, match=r"does not know language 'xx'; it knows de, en$") as raised:
        admit("able", ABLE, TranscriptionRequest(language="xx"))
    assert raised.value.param == "language"


@pytest.mark.parametrize("letter", ["x", "\0", "\udce9", "🙂"])
def test_of_a_long_language_little_is_repeated(letter: str) -> None:
    with pytest.raises(UnsupportedValueError, match=r"it knows de, en$") as raised:
        admit("able", ABLE, TranscriptionRequest(language=letter * 1_000_000))
    assert len(raised.value.message) < 1000
    assert raised.value.message.encode()


@pytest.mark.parametrize(
    ("written", "code"),
    [("de", "de"), ("en-US", "en"), ("GER", "de"), ("German", "de"), ("Deutsch", "de"), ("auto", None), (" ", None)],
)
def test_the_model_gets_its_own_code(written: str, code: str | None) -> None:
    able = evolve(ABLE, language_aliases={"deutsch": "de"})
    request = TranscriptionRequest(language=written, prompt="p")
    assert admit("able", able, request) == evolve(request, language=code)


def test_candidates_become_the_models_codes_each_once() -> None:
    able = evolve(ABLE, candidates=True)
    request = TranscriptionRequest(languages=("German", "de-AT", "auto", "EN"), language="auto")
    assert admit("able", able, request).languages == ("de", "en")


def test_candidates_beside_a_language_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="give them or language") as raised:
        admit("able", evolve(ABLE, candidates=True), TranscriptionRequest(language="de", languages=("en",)))
    assert raised.value.param == "languages"


@pytest.mark.parametrize("written", [None, "", " ", "auto", "Auto"])
def test_leaving_it_to_a_model_that_takes_no_language(written: str | None) -> None:
    assert admit("plain", Capabilities(), TranscriptionRequest(language=written)).language is None


def test_what_it_can_do_passes() -> None:
    request = TranscriptionRequest(
        task="translate",
        language="de",
        prompt="p",
        keywords=("k",),
        temperature=0.5,
        times=frozenset({"segment"}),
        options={"beams": 5, "loud": True, "gain": 1},
    )
    assert admit("able", ABLE, request) == request


def test_what_an_engine_cannot_carry_is_withdrawn() -> None:
    """Tasks, options and fields by themselves, and with them what they required; each is refused by its name then."""
    needs = {what: frozenset({"beams"}) for what in ("translate", "beams", "keywords", "temperature")}
    engine = evolve(TORCH, name="lesser", features=TORCH.features - {"beams"})
    left = served_capabilities("able", evolve(ABLE, requires={**needs, "loud": frozenset({"rules"})}), engine)
    assert left == evolve(
        ABLE,
        tasks=frozenset({"transcribe"}),
        keywords=False,
        temperature=False,
        options=ABLE.options[1:],
        requires={"loud": frozenset({"rules"})},
    )
    with pytest.raises(UnsupportedValueError, match=r"no option 'beams'; it knows gain, loud$") as raised:
        admit("able", left, TranscriptionRequest(options={"beams": 5}))
    assert raised.value.param == "beams"
    with pytest.raises(EngineMismatchError, match="'lesser' cannot run 'able': it lacks beams"):
        served_capabilities("able", evolve(ABLE, requires=dict.fromkeys(ABLE.tasks, frozenset({"beams"}))), engine)


def test_only_what_there_is_can_require() -> None:
    with pytest.raises(ValueError, match="no capability here: quiet"):
        evolve(ABLE, requires={"loud": frozenset({"rules"}), "quiet": frozenset({"rules"})})
