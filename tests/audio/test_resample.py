from __future__ import annotations

import hashlib
import io
from types import SimpleNamespace

import librosa
import numpy as np
import pytest

from asr_core.audio import from_array, load


@pytest.mark.parametrize("rate", [8000, 16000, 24000])
@pytest.mark.parametrize("source_rate", [8000, 11025, 16000, 22050, 44100, 48000, 96000])
def test_blocks_give_what_librosa_gives_for_the_whole(make: SimpleNamespace, source_rate: int, rate: int) -> None:
    noise = np.random.default_rng(3).standard_normal(200_003).astype(np.float32) * 0.1
    waveform = load(make.riff(noise, source_rate, "FLOAT"), rate)
    expected = librosa.resample(noise, orig_sr=source_rate, target_sr=rate, res_type="soxr_hq")
    assert len(waveform.samples) == len(expected) == -(-len(noise) * rate // source_rate)
    assert np.abs(waveform.samples - expected).max() < 1e-5


@pytest.mark.parametrize("count", [1, 2, 3, 159, 160, 161, 65535, 65536, 65537])
@pytest.mark.parametrize("source_rate", [8000, 16000, 44100])
def test_lengths_are_exact(source_rate: int, count: int) -> None:
    waveform = from_array(np.zeros(count, np.float32), source_rate, 16000)
    assert len(waveform.samples) == -(-count * 16000 // source_rate)


def test_fingerprints_go_by_rate_and_samples(make: SimpleNamespace) -> None:
    sound = (32767 * make.tone(1.0, 16000)).astype(np.int16)
    wave, flac = make.riff(sound, 16000), make.riff(sound, 16000, format="FLAC")
    first, second = load(wave, 16000), load(flac, 16000)
    assert first.fingerprint == second.fingerprint
    assert len({first.fingerprint, load(wave, 8000).fingerprint, from_array(sound // 2, 16000, 16000).fingerprint}) == 3
    content = (16000).to_bytes(8, "little") + first.samples.tobytes()
    assert first.fingerprint == hashlib.blake2b(content, digest_size=16).digest()


def test_samples_are_read_only(make: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="read-only"):
        load(make.riff(make.tone()), 16000).samples[0] = 1.0


def test_file_objects_are_read_from_where_they_stand_and_left_open(make: SimpleNamespace) -> None:
    file = io.BytesIO(b"header" + make.riff(make.tone(1.0, 16000)))
    file.seek(6)
    assert len(load(file, 16000).samples) == 16000
    assert not file.closed


def test_file_objects_need_not_be_seekable(make: SimpleNamespace) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

        def seek(self, *where: int) -> int:
            raise io.UnsupportedOperation

    assert len(load(Pipe(make.encode(make.tone(), 48000, "aac", "ipod")), 16000).samples) == pytest.approx(
        16000, abs=400
    )


def test_a_path_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(FileNotFoundError):
        load("/nowhere/at/all.wav", 16000)
