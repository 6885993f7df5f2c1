"""One upload to one waveform."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import closing

import numpy as np

from asr_core.audio._container import audio_stream, open_container
from asr_core.audio._deadline import Deadline, Watch
from asr_core.audio._decode import Block, Damage, decode
from asr_core.audio._limits import DEFAULT_LIMITS
from asr_core.audio._parts import parts
from asr_core.audio._sniff import sniff
from asr_core.audio._source import AudioSource, Source, open_source
from asr_core.audio._track import Track
from asr_core.audio._waveform import waveform
from asr_core.errors import AudioError, CorruptAudioError, NoAudioError, UnknownFormatError
from asr_core.types import UploadLimits, Waveform

# Where the sound ends was measured, so the header is not asked; larger packets than FFmpeg's take half the time.
_WAV_OPTIONS = {"ignore_length": "1", "max_size": "65536"}

_DTS_MARKS = ((0xFE7F, 0x0180), (0x7FFE, 0x8001), (0xFF1F, 0x00E8), (0x1FFF, 0xE800))
"""What begins a frame of DTS (ETSI TS 102 114), as samples: of 16 and of 14 bits, in both orders of bytes."""

_DTS_SEARCHED = 1 << 21
"""Bytes in which FFmpeg looks for DTS that passes itself off as PCM, at least four frames of it. That takes 15 of the
18 ms in which 5 s of sound are opened, so it is asked only where there are as many marks."""


def unwatched(seconds: float) -> bool:
    """Lets a decode run as long as its limits do."""
    return True


def load(source: AudioSource, rate: int, limits: UploadLimits = DEFAULT_LIMITS, watch: Watch = unwatched) -> Waveform:
    """Decode ``source`` to mono float32 at ``rate`` Hz: the mean of the channels of the first audio stream.

    ``source`` is bytes, a binary file object (read from where it stands, left open) or a path. What the file is, is
    told from its bytes. Damage becomes :class:`~asr_core.types.Hole` entries as long as something can be decoded;
    otherwise an :class:`~asr_core.errors.AudioError` is raised, UploadTooLargeError or AudioTooLongError past
    ``limits``, OSError where the path cannot be read. Blocks for the time of decoding: not for an event loop, which has
    :func:`read`. ``watch`` hears of every packet.
    """
    deadline = Deadline(limits.max_decode_seconds, watch)
    track = Track(rate, limits.max_seconds)
    with open_source(source, limits.max_bytes, deadline) as file:
        kind = sniff(file)
        _record(track, file.window(kind.start), kind.demuxer, deadline)
    samples = track.finish()
    if not len(samples):
        raise _silence(track)
    return waveform(samples, rate, limits, tuple(track.holes))


def is_audio(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like a container that :func:`load` reads, whatever comes of reading it.

    Raises:
        OSError: it cannot be read.
    """
    deadline = Deadline(DEFAULT_LIMITS.max_decode_seconds, unwatched)
    with open_source(path, sys.maxsize, deadline) as file:
        try:
            sniff(file)
        except AudioError:
            return False
    return True


def _record(track: Track, file: Source, demuxer: str, deadline: Deadline) -> None:
    """Put every part of ``file`` on ``track``; a part that cannot be read does not undo the others."""
    failure: AudioError | None = None
    for part in parts(file, demuxer):
        with closing(_items(part.source, demuxer)) as items:
            for item in items:
                deadline.check()
                if isinstance(item, Block):
                    track.add(item)
                    deadline.decoded = track.seconds
                elif isinstance(item, Damage):
                    track.mark(item.reason)
                else:
                    failure = failure or item
                    track.mark(item.message)
        if part.damage:
            track.mark(part.damage)
    deadline.check()
    if failure and not track.position:
        raise failure


def _items(file: Source, demuxer: str) -> Generator[Block | Damage | AudioError, None, None]:
    """What one file holds, with the error that ends it early as the last item; limits and bad samples raise instead."""
    options = _wav_options(file) if demuxer == "wav" else {}
    try:
        with open_container(file, demuxer, options) as container:
            yield from decode(container, audio_stream(container))
    except (CorruptAudioError, NoAudioError, UnknownFormatError) as error:
        yield error


def _wav_options(file: Source) -> dict[str, str]:
    file.seek(0)
    head = file.read(_DTS_SEARCHED)
    words = np.frombuffer(head, "<u2", count=len(head) // 2)
    marks = sum(np.count_nonzero((words[:-1] == one) & (words[1:] == other)) for one, other in _DTS_MARKS)
    return _WAV_OPTIONS if marks >= 4 else _WAV_OPTIONS | {"max_probe_packets": "1"}


def _silence(track: Track) -> NoAudioError | CorruptAudioError:
    if track.holes:
        return CorruptAudioError(f"Audio file might be corrupted or unsupported. {track.holes[0].reason}")
    return NoAudioError("The file holds no sound: not one sample in it.")
