from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
import soundfile


def tone(seconds: float = 1.0, rate: int = 48000, hertz: float = 440.0, level: float = 0.5) -> np.ndarray:
    """A sine, shape [n], float32."""
    return (level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def riff(samples: np.ndarray, rate: int = 16000, subtype: str = "PCM_16", **options: Any) -> bytes:
    """A file written by libsndfile, wav unless ``format`` says otherwise."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype=subtype, **{"format": "WAV"} | options)
    return file.getvalue()


def encode(
    samples: np.ndarray,
    rate: int,
    codec: str,
    container: str,
    *,
    video: bool = False,
    audio: bool = True,
    cover: bytes = b"",
    options: dict[str, str] | None = None,
) -> bytes:
    """A file written by FFmpeg: ``samples`` of shape [n] or [channels, n] as ``codec`` inside ``container``."""
    file = io.BytesIO()
    rows = np.atleast_2d(samples)
    with av.open(file, "w", format=container, options=options or {}) as output:
        pictures = _video_stream(output) if video else None
        if audio:
            stream = output.add_stream(codec, rate=rate)
            stream.layout = {1: "mono", 2: "stereo"}[len(rows)]
        if pictures is not None:
            for packet in _pictures(pictures):
                output.mux(packet)
        if audio:
            for packet in _packets(stream, rows, rate):
                output.mux(packet)
    return file.getvalue()


def _video_stream(output: Any) -> Any:
    stream = output.add_stream("mpeg4", rate=10)
    stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
    return stream


def _pictures(stream: Any) -> Any:
    for index in range(10):
        picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 * index, np.uint8), format="rgb24")
        picture.pts = index
        yield from stream.encode(picture)
    yield from stream.encode(None)


def _packets(stream: Any, rows: np.ndarray, rate: int) -> Any:
    layout = {1: "mono", 2: "stereo"}[len(rows)]
    for start in range(0, rows.shape[1], 4096):
        block = np.ascontiguousarray(rows[:, start : start + 4096])
        frame = av.AudioFrame.from_ndarray(block, format="fltp", layout=layout)
        frame.sample_rate, frame.pts = rate, start
        yield from stream.encode(frame)
    yield from stream.encode(None)


def loudest(samples: np.ndarray, rate: int) -> float:
    """Frequency of the strongest bin, in Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.fft.rfftfreq(len(samples), 1 / rate)[spectrum.argmax()])


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """Builders of audio files, none of which uses the code under test."""
    return SimpleNamespace(tone=tone, riff=riff, encode=encode, loudest=loudest)
