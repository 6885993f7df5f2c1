from __future__ import annotations

import io
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from asr_core.audio import load
from asr_core.errors import CorruptAudioError, NoAudioError, UnknownFormatError

LIST_CHUNK = b"LIST\x1a\x00\x00\x00INFOISFT\x0e\x00\x00\x00Lavf62.12.102\x00"


def wav(data: bytes, *, size: int | None = None, rate: int = 16000, bits: int = 16, tag: int = 1, channels: int = 1):
    """A wav file with whatever header one likes."""
    align = channels * bits // 8
    layout = struct.pack("<HHIIHH", tag, channels, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits)
    size = len(data) if size is None else size
    body = b"WAVEfmt " + struct.pack("<I", 16) + layout + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def pcm(count: int) -> bytes:
    return np.random.default_rng(7).integers(-20000, 20000, count, dtype="<i2").tobytes()


def reference(data: bytes) -> np.ndarray:
    return soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)[0].mean(axis=1)


@pytest.mark.parametrize("channels", [1, 2, 3, 8])
@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"])
def test_plain_subtypes_are_read_as_libsndfile_reads_them(make: SimpleNamespace, subtype: str, channels: int) -> None:
    columns = np.stack([make.tone(0.3, 16000, 300 + 100 * index) for index in range(channels)], axis=1)
    data = make.riff(columns, 16000, subtype)
    assert np.abs(load(data, 16000).samples - reference(data)).max() < 1e-6


# The two decoders of Microsoft's ADPCM round differently.
@pytest.mark.parametrize(("subtype", "tolerance"), [("IMA_ADPCM", 1e-6), ("MS_ADPCM", 4e-3), ("GSM610", 1e-6)])
def test_compressed_subtypes_are_read_as_libsndfile_reads_them(
    make: SimpleNamespace, subtype: str, tolerance: float
) -> None:
    data = make.riff(make.tone(1.0, 16000), 16000, subtype)
    assert np.abs(load(data, 16000).samples - reference(data)).max() < tolerance


@pytest.mark.parametrize("container", ["RF64", "W64", "WAVEX"])
def test_relatives_of_wav(make: SimpleNamespace, container: str) -> None:
    data = make.riff(make.tone(1.0, 16000), 16000, format=container)
    assert np.array_equal(load(data, 16000).samples, reference(data))


def test_big_endian_wav_is_refused_rather_than_played_as_noise(make: SimpleNamespace) -> None:
    with pytest.raises(UnknownFormatError):
        load(make.riff(make.tone(), endian="BIG"), 16000)


def test_full_scale_stays_full_scale() -> None:
    loudest = np.array([-32768, 32767, 0], "<i2")
    assert load(wav(loudest.tobytes()), 16000).samples.tolist() == [-1.0, 32767 / 32768, 0.0]


def test_equal_channels_keep_their_level_and_opposite_ones_cancel(make: SimpleNamespace) -> None:
    sound = make.tone(0.1, 16000, level=0.99)
    together, against = np.stack([sound, sound], axis=1), np.stack([sound, -sound], axis=1)
    assert np.array_equal(load(make.riff(together, subtype="FLOAT"), 16000).samples, sound)
    assert not load(make.riff(against, subtype="FLOAT"), 16000).samples.any()


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x7FFFF000])
def test_sizes_of_live_recordings_mean_up_to_the_end(size: int) -> None:
    waveform = load(wav(pcm(8000), size=size), 16000)
    assert len(waveform.samples) == 8000
    assert waveform.holes == ()


def test_a_file_cut_short_is_decoded_and_says_so() -> None:
    waveform = load(wav(pcm(8000), size=20000), 16000)
    assert len(waveform.samples) == 8000
    assert [hole.start_sample for hole in waveform.holes] == [8000]
    assert "16000 of 20000 bytes" in waveform.holes[0].reason


def test_a_size_too_small_loses_no_sound() -> None:
    waveform = load(wav(pcm(8000), size=4000), 16000)
    assert np.array_equal(waveform.samples * 32768, np.frombuffer(pcm(8000), "<i2"))


@pytest.mark.parametrize(
    "tail", [LIST_CHUNK, LIST_CHUNK[:-4], b"TAG" + bytes(125), b"abcd\x04\x00\x00\x00\xff\xff\xff\xff"]
)
def test_a_chunk_behind_the_sound_is_not_played(tail: bytes) -> None:
    assert len(load(wav(pcm(8000)) + tail, 16000).samples) == 8000


@pytest.mark.parametrize("padding", [b"", b"\x00"])
def test_an_odd_number_of_bytes_may_be_padded_or_not(padding: bytes) -> None:
    assert len(load(wav(b"\x90" * 999, bits=8) + padding + LIST_CHUNK, 16000).samples) == 999


def test_an_empty_data_chunk_before_another_one_is_empty() -> None:
    with pytest.raises(NoAudioError):
        load(wav(b"") + LIST_CHUNK, 16000)


def test_files_put_one_behind_the_other_are_all_heard() -> None:
    assert len(load(wav(pcm(8000)) + LIST_CHUNK + wav(pcm(4000)), 16000).samples) == 12000


def test_one_sample_is_a_waveform() -> None:
    assert load(wav(b"\x00\x40"), 16000).samples.tolist() == [0.5]
    assert len(load(wav(b"\x00\x40", rate=48000), 16000).samples) == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_samples_that_are_no_numbers_are_refused_with_their_place(bad: float) -> None:
    samples = np.zeros(32000, "<f4")
    samples[24000] = bad
    with pytest.raises(CorruptAudioError, match=r"1\.500 s"):
        load(wav(samples.tobytes(), tag=3, bits=32), 24000)


def test_one_bad_sample_late_in_a_long_file_refuses_all_of_it() -> None:
    samples = np.zeros(320_000, "<f4")
    samples[280_000] = float("nan")
    with pytest.raises(CorruptAudioError, match=r"17\.500 s"):
        load(wav(samples.tobytes(), tag=3, bits=32), 16000)


def test_doubles_beyond_float32_are_refused() -> None:
    with pytest.raises(CorruptAudioError, match="finite"):
        load(wav(np.full(100, 1e300).tobytes(), tag=3, bits=64), 16000)


def test_floats_beyond_full_scale_are_kept() -> None:
    loud = np.array([0.0, 5.0, -3.0], "<f4")
    assert load(wav(loud.tobytes(), tag=3, bits=32), 16000).samples.tolist() == [0.0, 5.0, -3.0]


@pytest.mark.parametrize(
    "absurd",
    [{"channels": 65535}, {"channels": 0}, {"rate": 0}, {"rate": 1}, {"rate": 4_000_000_000}, {"rate": 768_001}],
)
def test_absurd_headers_are_refused(absurd: dict[str, int]) -> None:
    with pytest.raises(CorruptAudioError):
        load(wav(pcm(8000), **absurd), 16000)
