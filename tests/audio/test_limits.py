from __future__ import annotations

import io
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest

from asr_core.audio import load
from asr_core.audio._decode import Block
from asr_core.audio._track import Track
from asr_core.errors import AudioTooLongError, DecodeTimeoutError, UploadTooLargeError
from asr_core.types import UploadLimits

# Decodes standard input in a fresh process and tells by how many MiB the process grew at its highest.
MEASURE = """
import resource, sys
import av, soxr
from asr_core.audio import load
from asr_core.errors import AsrError
from asr_core.types import UploadLimits
data = sys.stdin.buffer.read()
load(open(sys.argv[1], "rb").read(), 16000)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
try:
    print(len(load(data, 16000, UploadLimits(max_seconds=float(sys.argv[2]))).samples), end=" ")
except AsrError as error:
    print(type(error).__name__, end=" ")
print(peak() - before)
"""


@pytest.fixture
def measure(make: SimpleNamespace, tmp_path: Any) -> Any:
    warm = tmp_path / "warm.wav"
    warm.write_bytes(make.riff(make.tone(1.0, 48000), 48000))

    def run(data: bytes, max_seconds: float) -> tuple[str, float]:
        command = [sys.executable, "-c", MEASURE, str(warm), str(max_seconds)]
        output = (
            subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout.decode().split()
        )
        return output[0], float(output[1])

    return run


def silent_opus(packets: int) -> bytes:
    """``packets`` times 60 ms of silence, three bytes each."""
    file = io.BytesIO()
    with av.open(file, "w", format="ogg") as output:
        stream = output.add_stream("libopus", rate=48000, options={"frame_duration": "60", "application": "voip"})
        stream.layout, stream.bit_rate = "mono", 6000
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 2880), np.int16), format="s16", layout="mono")
        frame.sample_rate, frame.pts = 48000, 0
        silence = next(bytes(packet) for _ in range(9) for packet in stream.encode(frame))
        for index in range(packets):
            packet = av.Packet(silence)
            packet.stream, packet.pts, packet.dts, packet.duration = stream, 2880 * index, 2880 * index, 2880
            packet.time_base = Fraction(1, 48000)
            output.mux(packet)
    return file.getvalue()


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


@pytest.mark.parametrize("kind", ["bytes", "file", "path", "pipe"])
def test_bytes_are_limited_before_anything_is_decoded(tmp_path: Any, kind: str) -> None:
    content = b"not even audio" * 10
    path = tmp_path / "big"
    path.write_bytes(content)
    source = {"bytes": content, "file": io.BytesIO(content), "path": path, "pipe": Pipe(content)}[kind]
    with pytest.raises(UploadTooLargeError, match=r"\(139\) exceeded \(140 bytes read\)") as e:
        load(source, 16000, UploadLimits(max_bytes=139))
    assert e.value.status == 413


def test_seconds_are_limited_exactly(make: SimpleNamespace) -> None:
    data = make.riff(np.zeros(16000, np.float32), 8000)
    assert load(data, 16000, UploadLimits(max_seconds=2.0)).duration == 2.0
    with pytest.raises(AudioTooLongError, match=r"1\.99 s") as e:
        load(data, 16000, UploadLimits(max_seconds=1.99))
    assert e.value.layer == "upload_limits"


@pytest.mark.parametrize("container", ["WAV", "FLAC", "OGG"])
def test_the_clock_is_limited(make: SimpleNamespace, container: str) -> None:
    data = make.riff(make.tone(), 48000, {"OGG": "OPUS"}.get(container, "PCM_16"), format=container)
    with pytest.raises(DecodeTimeoutError, match="1e-09 s"):
        load(data, 16000, UploadLimits(max_decode_seconds=1e-9))


@pytest.mark.parametrize(("codec", "container"), [("pcm_s16le", "wav"), ("libmp3lame", "mp3"), ("aac", "ipod")])
def test_who_watches_may_end_it_at_any_time(
    make: SimpleNamespace, capfd: pytest.CaptureFixture[str], codec: str, container: str
) -> None:
    """FFmpeg may read on before it is asked what went wrong; what PyAV prints then is nobody's business."""
    data = make.encode(make.tone(), 48000, codec, container)
    calls: list[float] = []
    load(data, 16000, watch=lambda seconds: not calls.append(seconds))
    for last in range(len(calls)):
        rest = iter(range(last))

        def watch(seconds: float, rest: Iterator[int] = rest) -> bool:
            if next(rest, None) is None:
                raise LookupError("enough")
            return True

        with pytest.raises(LookupError, match="enough"):
            load(data, 16000, watch=watch)
    assert capfd.readouterr().err == ""


def test_hours_of_silence_in_a_small_file_stay_small(measure: Any) -> None:
    data = silent_opus(30_000)
    assert len(data) < 1_000_000
    seconds = 30_000 * 0.06
    outcome, grown = measure(data, 120.0)
    assert outcome == "AudioTooLongError"
    # Two minutes at 16 kHz are 8 MB; all of it at its own rate would be 345 MB.
    assert seconds == 1800
    assert grown < 60


def test_a_long_file_stands_in_memory_once(make: SimpleNamespace, measure: Any) -> None:
    data = make.riff(np.zeros(900 * 44100, np.float32), 44100, format="FLAC")
    outcome, grown = measure(data, 3600.0)
    assert outcome == str(900 * 16000)
    # 58 MB is what is asked for; the sound at its own rate would add 159 MB.
    assert grown < 120


def test_hours_have_room_for_minutes_more_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room is cleared when it is made, so it is memory as much as the sound is."""
    block, count = Block(np.ones(65536, np.float32), 16000), 200
    monkeypatch.setattr("asr_core.audio._track._MAX_ROOM", len(block.samples))
    track = Track(16000, 3600.0)
    tracemalloc.start()
    try:
        for _ in range(count):
            track.add(block)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (count + 5) * block.samples.nbytes
    assert len(track.finish()) == count * len(block.samples)


def absurd_movie(samples: int, size: int, per_chunk: int, chunks: int, codec: bytes) -> bytes:
    def box(name: bytes, *content: bytes) -> bytes:
        body = b"".join(content)
        return struct.pack(">I", 8 + len(body)) + name + body

    sound = bytes(6) + struct.pack(">H8xHHHHI", 1, 1, 16, 0, 0, 16000 << 16)
    table = box(
        b"stbl",
        box(b"stsd", bytes(4), struct.pack(">I", 1), box(codec, sound)),
        box(b"stts", bytes(4), struct.pack(">III", 1, samples, 1 if codec == b"sowt" else 1024)),
        box(b"stsc", bytes(4), struct.pack(">IIII", 1, 1, per_chunk, 1)),
        box(b"stsz", bytes(4), struct.pack(">II", size, samples)),
        box(b"stco", bytes(4), struct.pack(">I", chunks), struct.pack(">I", 44) * chunks),
    )
    media = box(
        b"mdia",
        box(b"mdhd", bytes(12), struct.pack(">II", 16000, 8000), bytes(4)),
        box(b"hdlr", bytes(8), b"soun", bytes(13)),
        box(b"minf", box(b"smhd", bytes(8)), table),
    )
    track = box(b"trak", box(b"tkhd", bytes(12), struct.pack(">I", 1), bytes(68)), media)
    header = box(b"mvhd", bytes(12), struct.pack(">II", 1000, 500), bytes(80))
    return box(b"ftyp", b"qt  ", bytes(4), b"qt  ") + box(b"moov", header, track) + box(b"mdat", bytes(1000))


@pytest.mark.parametrize(
    ("samples", "size", "per_chunk", "chunks"),
    [(10, 0x3FFFFFFF, 10, 1), (100_000_000, 1, 100_000_000, 1), (100_000_000, 1, 50_000, 2000), (2**31, 2, 2**30, 2)],
)
@pytest.mark.parametrize("codec", [b"mp4a", b"sowt"])
def test_movies_that_claim_enormous_tables_stay_small(
    measure: Any, samples: int, size: int, per_chunk: int, chunks: int, codec: bytes
) -> None:
    outcome, grown = measure(absurd_movie(samples, size, per_chunk, chunks, codec), 60.0)
    assert outcome
    assert grown < 150


def test_many_files_leave_nothing_behind(make: SimpleNamespace) -> None:
    files = [
        make.encode(make.tone(0.5), 48000, "libopus", "webm"),
        make.encode(make.tone(0.5), 48000, "aac", "ipod"),
        make.riff(make.tone(0.5, 44100), 44100),
    ]

    def resident() -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20

    for data in files * 10:
        load(data, 16000)
    before = resident()
    for data in files * 100:
        load(data, 16000)
    # One leaked waveform of 32 kB per file would be 9 MiB, one leaked native buffer of 96 kB 29 MiB.
    assert resident() - before < 8


def test_importing_is_cheap() -> None:
    code = (
        "import sys, asr_core.audio; "
        "print(sorted({'av', 'soxr', 'torch', 'librosa', 'transformers', 'soundfile'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"
