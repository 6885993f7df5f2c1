"""Plugins that strain the contract: each gets a named error or the defined behaviour, and the next request is right."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from asr_core.api import Transcriber, load
from asr_core.errors import InvalidRequestError, OverloadedError, PluginError
from asr_core.testing import tones
from asr_core.testing.distributions import write_distribution

SOURCE = Path(__file__).parent / "plugins" / "odd.py"
TEXT = "just a few words"
SOUND = tones.speak(TEXT)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcriber]:
    directory = tmp_path_factory.mktemp("odd")
    write_distribution(directory, "asr-odd", {"asr_odd_one": SOURCE.read_text()}, {"odd": "asr_odd_one"})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        importlib.invalidate_caches()
        with load("odd") as transcriber:
            yield transcriber


@pytest.mark.parametrize(
    ("odd_", "message"),
    [
        ("never content", "prepared 16 times"),
        ("probe for ever", "prepared 16 times"),
        ("ask for ever", "asked 16 times"),
        ("ask of nothing", "rows that are there"),
        ("no budget", "needs a budget and a stop token"),
        ("no stop", "needs a budget and a stop token"),
        ("slice beyond", "reaches beyond the 1.. rows"),
        ("slice of nothing", "span 3 of 1"),
        ("cross beyond", "cross is span 1 of 1"),
        ("span beyond", "does not lie in its clip"),
        ("fewer rows", "returned 1.. rows for a span of 1.. tokens"),
        ("resume nowhere", "consumed_to is 0"),
        ("resume beyond", "consumed_to is "),
        ("resume at once", "would come twice"),
    ],
)
def test_a_broken_promise_is_named_and_stays_with_its_request(odd: Transcriber, odd_: str, message: str) -> None:
    with pytest.raises(PluginError, match=message) as raised:
        odd.transcribe(SOUND, odd=odd_)
    assert "asr-odd" in str(raised.value)
    assert odd.transcribe(SOUND).text == TEXT


def test_retries_know_why(odd: Transcriber) -> None:
    transcript = odd.transcribe(SOUND, odd="content at the third")
    assert transcript.text == TEXT
    assert [(guard.kind, guard.note) for guard in transcript.guards] == [
        ("retry", "attempt 0 after None"),
        ("retry", "attempt 1 after attempt 0 after None"),
    ]


def test_nobody_spoke(odd: Transcriber) -> None:
    transcript = odd.transcribe(SOUND, odd="nobody")
    assert (transcript.text, transcript.segments) == ("", ())
    assert [(part.start_sample, part.end_sample, part.state) for part in transcript.coverage] == [
        (0, len(SOUND), "silent")
    ]


def test_the_rest_is_heard_as_a_clip_of_its_own(odd: Transcriber) -> None:
    transcript = odd.transcribe(SOUND, odd="resume")
    assert [(part.start_sample, part.end_sample) for part in transcript.coverage] == [
        (0, 16_000),
        (16_000, len(SOUND)),
    ]
    # The fake has no marks: its first segment ends where it stopped listening, the second begins there.
    assert [(segment.start_ms, segment.end_ms) for segment in transcript.segments] == [
        (0, 1000),
        (1000, round(1000 * transcript.duration)),
    ]


def test_a_probe_is_answered_before_the_clip_runs(odd: Transcriber) -> None:
    assert odd.transcribe(SOUND, odd="probe").text == TEXT[:3]


def test_a_review_is_answered_what_it_asks_once(odd: Transcriber) -> None:
    """Also before a retry, which knows it still; nothing is generated again for it."""
    transcript = odd.transcribe(SOUND, odd="ask")
    assert [(guard.kind, guard.note) for guard in transcript.guards] == [("retry", "answered")]
    assert transcript.text == TEXT
    assert transcript.usage.output_tokens == 2 * odd.transcribe(SOUND).usage.output_tokens


def test_a_plugin_refuses_before_audio_is_decoded(odd: Transcriber) -> None:
    for sound in (SOUND, np.zeros(16_000, np.float32), b"no audio at all"):
        with pytest.raises(InvalidRequestError, match="special token") as raised:
            odd.transcribe(sound, prompt="<|stop|>")
        assert raised.value.param == "prompt"


def test_closing_ends_what_runs_and_refuses_what_comes(fake_model: Path) -> None:
    transcriber = load("fake")
    assert transcriber.transcribe(SOUND).text == TEXT
    transcriber.close()
    transcriber.close()
    with pytest.raises(OverloadedError, match="closed"):
        transcriber.transcribe(SOUND)


def test_a_program_that_closes_nothing_ends(fake_model: Path) -> None:
    program = """
        import asr_core
        from asr_core.testing import tones
        model = asr_core.load("fake")
        print(model.transcribe(tones.speak("still here")).text)
    """
    lines = "\n".join(line.strip() for line in program.strip().splitlines())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", lines], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "still here"
