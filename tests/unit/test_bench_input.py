"""What a benchmark reads, and what it sends."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asr_core.bench.drive import prepare
from asr_core.bench.manifest import Line, read_manifest
from asr_core.bench.sounds import RATE, Sound, open_sounds, unique, wav
from asr_core.errors import BenchError

GOOD = {"path": "a.wav", "language": "en", "reference": "one"}


def manifest(directory: Path, *lines: Any) -> Path:
    file = directory / "manifest.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return file


def test_paths_are_relative_to_the_manifest(tmp_path: Path) -> None:
    absolute = {"path": "/far/b.flac", "language": None, "reference": "", "speaker": "x"}
    assert read_manifest(manifest(tmp_path, GOOD, "", absolute)) == (
        Line(tmp_path / "a.wav", "en", "one"),
        Line(Path("/far/b.flac"), None, ""),
    )


@pytest.mark.parametrize(
    ("line", "field", "says"),
    [
        ("{", "manifest", "no JSON"),
        ("[1]", "manifest", "no object with path, language, reference"),
        ({"path": "a.wav", "reference": "x"}, "language", "no 'language', which is a code or null"),
        ({"language": "en", "reference": "x"}, "path", "no 'path', which is a text"),
        (GOOD | {"reference": None}, "reference", "'reference' is None, must be a text"),
        (GOOD | {"path": 7}, "path", "'path' is 7, must be a text"),
        (GOOD | {"language": ["en"]}, "language", "'language' is ['en'], must be a code or null"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(tmp_path: Path, line: Any, field: str, says: str) -> None:
    with pytest.raises(BenchError) as caught:
        read_manifest(manifest(tmp_path, GOOD, line))
    assert caught.value.param == field
    assert f"{tmp_path / 'manifest.jsonl'}, line 2: " in caught.value.message
    assert says in caught.value.message


def test_an_empty_manifest_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="has no line"):
        read_manifest(manifest(tmp_path, "", " "))
    (tmp_path / "manifest.jsonl").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(BenchError, match="cannot be read"):
        read_manifest(tmp_path / "manifest.jsonl")


def test_a_recording_that_is_not_there_or_no_audio_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("not audio")
    for name in ("missing.wav", "text.wav"):
        with pytest.raises(BenchError, match=name) as caught:
            open_sounds([Line(tmp_path / name, None, "")])
        assert caught.value.param == "path"


def test_sixteen_bits_are_read_as_they_are(librivox: dict[Path, str]) -> None:
    path = next(iter(librivox))
    (sound,) = open_sounds([Line(path, "en", "")])
    samples, rate = soundfile.read(path, dtype="int16")
    assert (rate, sound.seconds) == (RATE, len(samples) / RATE)
    np.testing.assert_array_equal(sound.samples, samples)


def test_noise_is_one_step_at_most_and_no_two_requests_are_equal() -> None:
    order = np.random.default_rng(0)
    samples = np.concatenate([order.integers(-(2**15), 2**15, 4000), [-(2**15)] * 500, [2**15 - 1] * 500]).astype("i2")
    made = [unique(samples, seed, number) for seed in range(4) for number in range(50)]
    assert len({copy.tobytes() for copy in made} | {samples.tobytes()}) == 201
    for copy in made:
        assert copy.dtype == np.int16
        steps = copy.astype(int) - samples
        assert set(np.unique(steps)) == {-1, 0, 1}
    np.testing.assert_array_equal(made[7], unique(samples, 0, 7))


def test_requests_take_the_sounds_in_turn_as_files() -> None:
    sounds = [Sound(Line(Path(name), None, name), np.full(800, 100, np.int16)) for name in "abc"]
    requests = prepare(sounds, 7, seed=5, first=100)
    assert "".join(request.sound.line.reference for request in requests) == "abcabca"
    assert len({request.wav for request in requests}) == 7
    assert not {request.wav for request in requests} & {request.wav for request in prepare(sounds, 7, 5, 107)}
    with wave.open(io.BytesIO(requests[6].wav)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        assert file.readframes(800) == unique(sounds[0].samples, 5, 106).tobytes()
    assert wav(sounds[0].samples) not in {request.wav for request in requests}
