"""The fake model is a plugin like any other: it keeps the contract, and shows what it promises to show."""

from __future__ import annotations

import pytest

from asr_core.api import Transcriber
from asr_core.errors import EngineError, InvalidRequestError
from asr_core.testing import tones
from asr_core.testing.conformance import ModelConformance
from asr_core.types import Samples

pytestmark = pytest.mark.usefixtures("fake_model")

TEXT = "Grüße aus Kraków, 你好 🙂!"


class TestFake(ModelConformance):
    model = "fake"

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> Samples:
        return tones.speak(TEXT)


def test_it_reads_what_was_spoken(fake: Transcriber) -> None:
    assert fake.transcribe(tones.speak(TEXT)).text == TEXT


def test_early_end_leaves_the_rest_out(fake: Transcriber) -> None:
    assert fake.transcribe(tones.speak("one two three four five"), behaviour="early_end").text == "one two three"


def test_much_too_early_an_end_is_told(fake: Transcriber) -> None:
    text = "one two three four five six seven eight nine ten eleven twelve"
    (guard,) = fake.transcribe(tones.speak(text), behaviour="early_end").guards
    assert (guard.kind, guard.start_ms) == ("early_end", 0)
    assert fake.transcribe(tones.speak(text)).guards == ()


def test_a_loop_ends_before_the_budget_and_says_so(fake: Transcriber) -> None:
    transcript = fake.transcribe(tones.speak("ha! ha! and more"), behaviour="loop")
    assert transcript.text.startswith("ha! ha! ha! ha! ha! ha! ")
    assert [guard.kind for guard in transcript.guards] == ["loop"]
    assert transcript.usage.output_tokens < 150


def test_speakers_and_times_come_from_the_marks(fake: Transcriber) -> None:
    transcript = fake.transcribe(tones.speak("hi/you too"), behaviour="speakers")
    assert [(segment.speaker, segment.text) for segment in transcript.segments] == [("A", "hi"), ("B", "you too")]
    # 30 ms of silence come first; a character is 50 ms of tone and 30 ms of silence.
    assert [(segment.start_ms, segment.end_ms) for segment in transcript.segments] == [(30, 160), (270, 800)]


def test_a_raising_model_fails_its_request_only(fake: Transcriber) -> None:
    with pytest.raises(EngineError, match="generation failed"):
        fake.transcribe(tones.speak("hello"), behaviour="raise")
    assert fake.transcribe(tones.speak("hello")).text == "hello"


@pytest.mark.parametrize(
    ("option", "message"),
    [({"behaviour": "sing"}, "behaviour must be one of"), ({"behaviour": 3}, "type string"), ({"mood": "x"}, "mood")],
)
def test_options_are_checked(fake: Transcriber, option: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as raised:
        fake.transcribe(tones.speak("hello"), **option)
    assert raised.value.param == next(iter(option))
