from __future__ import annotations

import io
import struct
from types import SimpleNamespace

import av
import numpy as np
import pytest

from asr_core.audio import load
from asr_core.errors import NoAudioError, UnknownFormatError

SECONDS = 2.0

WRITTEN_BY_FFMPEG = {
    "mp3": ("libmp3lame", "mp3"),
    "m4a": ("aac", "ipod"),
    "mov": ("aac", "mov"),
    "mp4": ("aac", "mp4"),
    "alac": ("alac", "ipod"),
    "mov pcm": ("pcm_s16le", "mov"),
    "webm": ("libopus", "webm"),
    "mkv": ("aac", "matroska"),
    "mka flac": ("flac", "matroska"),
    "adts": ("aac", "adts"),
    "ogg opus": ("libopus", "ogg"),
    "mpeg layer 2": ("mp2", "mp2"),
    "mp3 in wav": ("libmp3lame", "wav"),
}
WRITTEN_BY_LIBSNDFILE = {"flac": ("FLAC", "PCM_16"), "ogg vorbis": ("OGG", "VORBIS"), "mp3": ("MP3", "MPEG_LAYER_III")}
ID3 = b"ID3\x04\x00\x00\x00\x00\x01\x00" + bytes(128)


def check(make: SimpleNamespace, data: bytes, seconds: float = SECONDS) -> None:
    """A 440 Hz tone of half scale, ``seconds`` long but for what encoders add at the ends."""
    waveform = load(data, 16000)
    assert waveform.holes == ()
    assert waveform.duration == pytest.approx(seconds, abs=0.05)
    middle = waveform.samples[4000:-4000]
    assert make.loudest(middle, 16000) == pytest.approx(440, abs=2)
    assert float(np.sqrt((middle**2).mean())) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize("name", WRITTEN_BY_FFMPEG)
def test_containers_of_ffmpeg(make: SimpleNamespace, name: str) -> None:
    check(make, make.encode(make.tone(SECONDS), 48000, *WRITTEN_BY_FFMPEG[name]))


@pytest.mark.parametrize("name", WRITTEN_BY_LIBSNDFILE)
def test_containers_of_libsndfile(make: SimpleNamespace, name: str) -> None:
    container, subtype = WRITTEN_BY_LIBSNDFILE[name]
    check(make, make.riff(make.tone(SECONDS, 44100), 44100, subtype, format=container))


@pytest.mark.parametrize("name", ["mp3", "m4a", "webm", "adts", "alac"])
def test_stereo(make: SimpleNamespace, name: str) -> None:
    check(make, make.encode(np.stack([make.tone(SECONDS)] * 2), 48000, *WRITTEN_BY_FFMPEG[name]))


def test_live_webm_without_duration_is_decoded_in_full(make: SimpleNamespace) -> None:
    data = make.encode(make.tone(12.0), 48000, "libopus", "webm", options={"live": "1"})
    with av.open(io.BytesIO(data)) as container:
        assert container.duration is None
    check(make, data, 12.0)


def test_fragmented_mp4(make: SimpleNamespace) -> None:
    options = {"movflags": "frag_keyframe+empty_moov"}
    check(make, make.encode(make.tone(SECONDS), 48000, "aac", "mp4", options=options))


def test_mp4_with_video(make: SimpleNamespace) -> None:
    check(make, make.encode(make.tone(SECONDS), 48000, "aac", "mp4", video=True))


def test_mp4_with_video_only_says_so(make: SimpleNamespace) -> None:
    with pytest.raises(NoAudioError, match="only video"):
        load(make.encode(make.tone(), 48000, "aac", "mp4", video=True, audio=False), 16000)


def test_cover_art_is_not_a_video(make: SimpleNamespace) -> None:
    picture = io.BytesIO()
    with av.open(picture, "w", format="image2pipe") as output:
        stream = output.add_stream("mjpeg", rate=1)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuvj420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    # FLAC's own picture block: type 3 (front cover), MIME type, no description, sizes, the JPEG.
    jpeg, mime = picture.getvalue(), b"image/jpeg"
    block = struct.pack(">II", 3, len(mime)) + mime + struct.pack(">IIIIII", 0, 64, 64, 24, 0, len(jpeg)) + jpeg
    flac = make.riff(make.tone(SECONDS), 48000, format="FLAC")
    info_end = 4 + 4 + 34
    data = flac[:info_end] + b"\x06" + len(block).to_bytes(3) + block + flac[info_end:]
    with av.open(io.BytesIO(data)) as container:
        assert len(container.streams.video) == 1
    check(make, data)


@pytest.mark.parametrize("tags", [1, 2])
def test_id3_tags_in_front_of_any_container(make: SimpleNamespace, tags: int) -> None:
    tone = make.tone(SECONDS)
    for data in (
        make.riff(tone, 48000, format="FLAC"),
        make.riff(tone, 48000),
        make.encode(tone, 48000, "aac", "adts"),
        make.encode(tone, 48000, "libmp3lame", "mp3", options={"id3v2_version": "0", "write_xing": "0"}),
    ):
        check(make, ID3 * tags + data)


def test_mp3_that_begins_inside_a_frame(make: SimpleNamespace) -> None:
    data = make.encode(make.tone(SECONDS), 48000, "libmp3lame", "mp3", options={"write_xing": "0"})
    waveform = load(data[100:], 16000)
    assert waveform.duration == pytest.approx(SECONDS, abs=0.15)
    assert make.loudest(waveform.samples, 16000) == pytest.approx(440, abs=2)


@pytest.mark.parametrize("frames", [1, 40, 1_000_000])
def test_lying_frame_counts_of_mp3_are_not_believed(make: SimpleNamespace, frames: int) -> None:
    data = bytearray(make.encode(make.tone(SECONDS), 48000, "libmp3lame", "mp3"))
    at = data.find(b"Info")
    assert at > 0
    data[at + 8 : at + 12] = frames.to_bytes(4)
    check(make, bytes(data))


def test_eight_channels_in_planes(make: SimpleNamespace) -> None:
    """PyAV's own to_ndarray() dies of a segmentation fault on these."""
    data = io.BytesIO()
    tones = np.stack([make.tone(0.5, hertz=440 + 110 * index) for index in range(8)], axis=1)
    with av.open(data, "w", format="ogg") as output:
        stream = output.add_stream("libopus", rate=48000, options={"mapping_family": "1"})
        stream.layout, stream.format, stream.bit_rate = "7.1", "flt", 1_000_000
        frame = av.AudioFrame(format="flt", layout="7.1", samples=len(tones))
        frame.planes[0].update(np.ascontiguousarray(tones).tobytes())
        frame.sample_rate, frame.pts = 48000, 0
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    waveform = load(data.getvalue(), 48000)
    assert waveform.duration == pytest.approx(0.5, abs=0.01)
    # Each tone at an eighth of its level, but for the one that stands on the low-frequency channel.
    spectrum = np.abs(np.fft.rfft(waveform.samples[4800:19200])) / 7200
    levels = [spectrum[round((440 + 110 * index) * 14400 / 48000)] for index in range(8)]
    assert sum(0.04 < level < 0.08 for level in levels) >= 7


@pytest.mark.parametrize(("first", "second"), [(22050, 48000), (48000, 22050)])
@pytest.mark.parametrize("kind", [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")])
def test_rates_may_change_within_a_file(make: SimpleNamespace, kind: tuple[str, str], first: int, second: int) -> None:
    container, subtype = kind
    if subtype == "OPUS":
        first, second = (24000 if rate == 22050 else rate for rate in (first, second))
    low = make.riff(make.tone(1.0, first, 440), first, subtype, format=container)
    high = make.riff(make.tone(1.0, second, 880), second, subtype, format=container)
    waveform = load(low + high, 16000)
    assert waveform.holes == ()
    assert waveform.duration == pytest.approx(2.0, abs=0.12)
    assert make.loudest(waveform.samples[2000:14000], 16000) == pytest.approx(440, abs=5)
    assert make.loudest(waveform.samples[-14000:-2000], 16000) == pytest.approx(880, abs=5)


def test_channels_may_change_within_a_file(make: SimpleNamespace) -> None:
    one = make.encode(make.tone(1.0), 48000, "aac", "adts")
    two = make.encode(np.stack([make.tone(1.0)] * 2), 48000, "aac", "adts")
    check(make, one + two)


@pytest.mark.parametrize("gap", [0, 400_000], ids=["at once", "behind a gap"])
@pytest.mark.parametrize("order", ["<i2", ">i2"])
def test_dts_that_passes_itself_off_as_pcm_is_not_played(make: SimpleNamespace, gap: int, order: str) -> None:
    """As on a DTS CD: frames of ETSI TS 102 114, here of 1024 bytes, in place of the samples of a WAV."""
    frames = bytes(gap) + (bytes.fromhex("7ffe8001fc3c3ff0b5e0003800") + bytes(1011)) * 64
    with pytest.raises(UnknownFormatError, match="dca"):
        load(make.riff(np.frombuffer(frames, order).astype(np.int16), 48000), 16000)
