"""Damaged and lying audio files of every container, sent as what they are: the answer is text, or the file is named."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, note, settings
from hypothesis import strategies as st

from asr_core.testing import tones

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

CODECS = {
    "wav": ("pcm_s16le", "wav"),
    "wav float": ("pcm_f32le", "wav"),
    "wav mulaw": ("pcm_mulaw", "wav"),
    "wav adpcm": ("adpcm_ima_wav", "wav"),
    "w64": ("pcm_s16le", "w64"),
    "flac": ("flac", "flac"),
    "ogg opus": ("libopus", "ogg"),
    "mp3": ("libmp3lame", "mp3"),
    "aac": ("aac", "adts"),
    "m4a": ("aac", "ipod"),
    "mp4 in fragments": ("aac", "mp4"),
    "mov": ("pcm_s16le", "mov"),
    "webm": ("libopus", "webm"),
    "mkv": ("aac", "matroska"),
}
VORBIS = "ogg vorbis"
"""The one that FFmpeg cannot write here, and libsndfile can."""

MARKS = (
    b"RIFF", b"fmt ", b"data", b"ds64", b"fLaC", b"OggS", b"ID3", b"ftyp", b"moov", b"mdhd", b"mvhd", b"stsd", b"stsz",
    b"stts", b"stsc", b"stco", b"elst", b"mdat", b"moof", b"trun", b"tfhd", b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75",
    b"\x16\x54\xae\x6b", b"\x2a\xd7\xb1", b"\xa3", b"\xec",
)  # fmt: skip
"""Beside these stand lengths, counts and rates."""

EXTREMES = st.one_of(
    st.sampled_from([b"\0" * 4, b"\0" * 8, b"\0\0\0\1" * 2, b"\1\0\0\0", b"\0\0\0\x80", b"\x7f\xff\xff\xff"]),
    st.sampled_from([b"\xff" * 4, b"\xff" * 8, b"\1" + b"\xff" * 7, b"\xff\x7f"]),
    st.binary(min_size=1, max_size=8),
)
"""Numbers of one to eight bytes, in either order; one of them is Matroska's length that is not known."""

ANSWERS = st.sampled_from([(), (), (("response_format", "verbose_json"),), (("stream", "true"),)])


def encode(samples: Any, codec: str, container: str) -> bytes:
    """Mono float samples at 16 kHz as FFmpeg writes them."""
    file = io.BytesIO()
    rate = 48000 if codec == "libopus" else tones.RATE
    movflags = {"movflags": "frag_keyframe+empty_moov"} if container == "mp4" else {}
    with av.open(file, "w", format=container, options=movflags) as output:
        stream = output.add_stream(codec, rate=rate, layout="mono")
        resampler = av.AudioResampler(stream.codec_context.codec.audio_formats[0], "mono", rate)
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate = tones.RATE
        for whole in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(stream.encode(whole))
        output.mux(stream.encode(None))
    return file.getvalue()


@cache
def files() -> dict[str, bytes]:
    """A small good file of each kind, by name."""
    sound, vorbis = tones.speak("A, odd, A"), io.BytesIO()
    soundfile.write(vorbis, sound, tones.RATE, format="OGG", subtype="VORBIS")
    return {name: encode(sound, *how) for name, how in CODECS.items()} | {VORBIS: vorbis.getvalue()}


def place(draw: st.DrawFn, data: bytes) -> int:
    """Somewhere in ``data``, rather in its head than elsewhere."""
    return draw(st.integers(0, min(600, len(data))) | st.integers(0, len(data)))


def flipped(draw: st.DrawFn, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 20)) if data else 0):
        changed[min(place(draw, data), len(data) - 1)] ^= 1 << draw(st.integers(0, 7))
    return bytes(changed)


def cut(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: place(draw, data)]


def spliced(draw: st.DrawFn, data: bytes) -> bytes:
    """The head of one file before the rest of another."""
    other = files()[draw(st.sampled_from([*CODECS, VORBIS]))]
    return other[: place(draw, other)] + data[place(draw, data) :]


def lying(draw: st.DrawFn, data: bytes) -> bytes:
    """Another number near a mark, behind it or in front of it."""
    found = [at for mark in MARKS if (at := data.find(mark)) >= 0]
    if not found:
        return data
    at = max(0, draw(st.sampled_from(found)) + draw(st.integers(-8, 40)))
    new = draw(EXTREMES)
    return data[:at] + new + data[at + len(new) :]


def filled(draw: st.DrawFn, data: bytes) -> bytes:
    """A stretch of one byte."""
    at, count = place(draw, data), draw(st.integers(1, 2000))
    return data[:at] + bytes([draw(st.sampled_from([0, 0x41, 0xFF]))]) * count + data[at + count :]


def repeated(draw: st.DrawFn, data: bytes) -> bytes:
    """A stretch over and over."""
    at, count = place(draw, data), draw(st.integers(1, 300))
    return data[:at] + data[at : at + count] * draw(st.integers(2, 200)) + data[at + count :]


def tagged(draw: st.DrawFn, data: bytes) -> bytes:
    """Behind a tag whose length may be anything."""
    return b"ID3\x04\x00" + draw(st.binary(min_size=5, max_size=5)) + draw(st.binary(max_size=100)) + data


CHANGES: tuple[Callable[..., bytes], ...] = (flipped, cut, spliced, lying, lying, filled, repeated, tagged)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = files()[draw(st.sampled_from([*CODECS, VORBIS]))]
    for change in draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=4)):
        data = change(draw, data)
    return data


def number(draw: st.DrawFn, usual: int, size: int, *odd: int) -> int:
    """An unsigned number of ``size`` bits, mostly the usual one."""
    if draw(st.integers(0, 9)) < 9:
        return usual
    return draw(st.sampled_from((0, 1, *odd)) | st.integers(0, 2**size - 1))


@st.composite
def formats(draw: st.DrawFn) -> bytes:
    """A chunk that says what the samples of a wav are."""
    codec, bits = draw(st.sampled_from([(1, 16), (1, 8), (1, 24), (3, 32), (3, 64), (6, 8), (7, 8), (2, 4), (17, 4)]))
    channels = number(draw, draw(st.integers(1, 2)), 16, 8, 64, 65)
    rate = number(draw, 16000, 32, 8000, 999, 768_000)
    align = max(1, channels * bits // 8)
    fields = struct.pack(
        "<HHIIHH",
        number(draw, codec, 16, 0x55, 0xFFFE),
        channels,
        rate,
        number(draw, rate * align % 2**32, 32),
        number(draw, align % 2**16, 16),
        number(draw, bits, 16),
    )
    fields += draw(st.sampled_from([b"", b"\0\0"]) | st.binary(max_size=40))
    return b"fmt " + struct.pack("<I", number(draw, len(fields), 32, 16, 18, 40)) + fields


@st.composite
def wav_files(draw: st.DrawFn) -> bytes:
    """A wav of which every field may be anything, and most are what they should be."""
    count = draw(st.integers(0, 20_000) | st.just(8000))
    sound = bytes(draw(st.integers(0, 3))) + np.arange(count, dtype=np.int16).tobytes()
    long = b"ds64" + struct.pack("<IQQQI", 28, 2**63, 2**64 - 1, 2**62, 0)
    more = [b"", b"", b"LIST\4\0\0\0INFO", b"fact\4\0\0\0" + b"\xff" * 4, b"junk\xff\xff\xff\x7f", long]
    chunks = [draw(formats()), draw(st.sampled_from(more))]
    size = struct.pack("<I", number(draw, len(sound), 32, 0xFFFFFFFF, len(sound) + 1))
    tail = draw(st.sampled_from([b"", b"LIST\xff\xff\xff\xff", b"data\0\0\0\0", b"RIFF\0\0\0\0WAVE"]))
    body = b"WAVE" + b"".join(draw(st.permutations(chunks))) + b"data" + size + sound + tail
    name = draw(st.sampled_from([b"RIFF"] * 6 + [b"RF64", b"BW64"]))
    return name + struct.pack("<I", number(draw, len(body), 32)) + body


@pytest.mark.parametrize("name", [*CODECS, VORBIS])
def test_a_good_file_is_read(target: Any, name: str) -> None:
    status, _, body = target.upload(files()[name])
    assert status == 200, body


def test_damaged_files(target: Any, judge: Any, fuzzing: settings) -> None:
    @fuzzing
    @given(damaged(), ANSWERS)
    def ask(file: bytes, parts: tuple[tuple[str, str], ...]) -> None:
        note(f"{file[:4000].hex()}")
        judge(*target.upload(file, *parts))

    ask()


def test_wav_headers(target: Any, judge: Any, fuzzing: settings) -> None:
    @fuzzing
    @given(wav_files(), ANSWERS)
    def ask(file: bytes, parts: tuple[tuple[str, str], ...]) -> None:
        note(f"{file[:4000].hex()}")
        judge(*target.upload(file, *parts))

    ask()
