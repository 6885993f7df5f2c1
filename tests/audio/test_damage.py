from __future__ import annotations

import os
from contextlib import suppress
from types import SimpleNamespace

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_core.audio import load
from asr_core.errors import AudioError, AudioTooLongError, CorruptAudioError
from asr_core.types import UploadLimits

from_ffmpeg = {
    "webm": ("libopus", "webm"),
    "mkv": ("aac", "matroska"),
    "mp3": ("libmp3lame", "mp3"),
    "adts": ("aac", "adts"),
    "flac": ("flac", "flac"),
    "w64": ("pcm_s16le", "w64"),
    "wav": ("pcm_s16le", "wav"),
}


@pytest.fixture(scope="session")
def files(make: SimpleNamespace) -> dict[str, bytes]:
    sound = make.tone(4.0) + np.random.default_rng(5).standard_normal(192_000).astype(np.float32) * 0.01
    files = {name: make.encode(sound, 48000, *how) for name, how in from_ffmpeg.items()}
    files["ogg"] = make.encode(sound, 48000, "libopus", "ogg")
    files["m4a"] = make.encode(sound, 48000, "aac", "ipod")
    files["mp4 fragments"] = make.encode(sound, 48000, "aac", "mp4", options={"movflags": "frag_keyframe+empty_moov"})
    return files


@pytest.mark.parametrize("name", from_ffmpeg)
def test_a_file_cut_short_gives_its_beginning_and_a_hole(files: dict[str, bytes], name: str) -> None:
    whole = load(files[name], 16000)
    cut = load(files[name][: len(files[name]) * 6 // 10], 16000)
    assert whole.holes == ()
    assert cut.duration == pytest.approx(2.4, abs=0.3)
    assert cut.holes[-1].start_sample == pytest.approx(len(cut.samples), abs=2000)
    assert np.abs(cut.samples[:30000] - whole.samples[:30000]).max() < 0.05


def test_an_m4a_with_its_index_in_front_may_be_cut_short(tmp_path: os.PathLike[str], make: SimpleNamespace) -> None:
    path = os.path.join(tmp_path, "a.m4a")
    with av.open(path, "w", format="ipod", options={"movflags": "faststart"}) as output:
        stream = output.add_stream("aac", rate=48000, layout="mono")
        frame = av.AudioFrame.from_ndarray(make.tone(4.0)[None], format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 48000, 0
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    with open(path, "rb") as file:
        data = file.read()
    waveform = load(data[: len(data) * 6 // 10], 16000)
    assert waveform.duration == pytest.approx(2.4, abs=0.4)
    assert waveform.holes


@pytest.mark.parametrize("name", ["webm", "ogg", "mkv", "mp3", "adts", "flac", "m4a"])
def test_damage_in_the_middle_is_reported_where_it_is(files: dict[str, bytes], name: str) -> None:
    data = files[name]
    middle = len(data) // 2
    waveform = load(data[:middle] + bytes(800) + data[middle + 800 :], 16000)
    assert waveform.duration > 1.5
    assert waveform.holes
    assert 1.0 < waveform.holes[0].start_sample / 16000 < 3.0


def test_holes_are_few(make: SimpleNamespace) -> None:
    data = bytearray(make.encode(make.tone(30.0), 48000, "aac", "adts"))
    for at in range(2000, len(data) - 400, 400):
        data[at : at + 40] = bytes(40)
    waveform = load(bytes(data), 16000)
    starts = [hole.start_sample for hole in waveform.holes]
    assert 1 < len(starts) <= 100
    assert starts == sorted(set(starts))
    assert starts[-1] <= len(waveform.samples)


@pytest.mark.parametrize("name", ["m4a", "flac", "webm", "ogg", "mp4 fragments"])
def test_a_head_alone_is_corrupt(files: dict[str, bytes], name: str) -> None:
    with pytest.raises(CorruptAudioError):
        load(files[name][:60], 16000)


def test_sound_of_noise_bytes_is_corrupt(files: dict[str, bytes]) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 50_000, dtype=np.uint8).tobytes()
    for head in (b"fLaC", b"OggS", b"\x1a\x45\xdf\xa3", b"\x00\x00\x00\x18ftypM4A "):
        with pytest.raises(AudioError):
            load(head + noise, 16000)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_happens_to_a_file_the_answer_is_sound_or_a_typed_error(
    files: dict[str, bytes], data: st.DataObject
) -> None:
    upload = bytearray(files[data.draw(st.sampled_from(sorted(files)))])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.one_of(st.integers(0, 600), st.integers(0, len(upload) - 1)))
        new = data.draw(st.binary(min_size=1, max_size=8))
        upload[at : at + len(new)] = new
    upload = upload[: data.draw(st.integers(0, len(upload)))] if data.draw(st.booleans()) else upload
    # Any error but these two fails the test.
    with suppress(AudioError, AudioTooLongError):
        waveform = load(bytes(upload), 16000, UploadLimits(max_seconds=60.0))
        assert len(waveform.samples) > 0
        assert np.isfinite(waveform.samples).all()
        assert all(0 <= hole.start_sample <= len(waveform.samples) for hole in waveform.holes)
