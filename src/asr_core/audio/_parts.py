"""Where an upload falls into files that were put one behind the other, and whether the last of them is all there."""

from __future__ import annotations

from attrs import frozen

from asr_core.audio._riff import wav_parts
from asr_core.audio._source import Source

_MAX_PARTS = 256
_SCAN_BYTES = 1 << 20
_OGG_HEADER = 27
# Capture pattern, version 0, flag "first page of a stream".
_OGG_FIRST = b"OggS\x00\x02"
_SEGMENT_ID = b"\x18\x53\x80\x67"


@frozen
class Part:
    """A file within the upload; ``damage`` is one sentence about bytes that are missing at its end, or ""."""

    source: Source
    damage: str = ""


def parts(source: Source, demuxer: str) -> list[Part]:
    """The files in ``source``, in order; FFmpeg alone stops at the first wav, and at an ogg of another rate."""
    if demuxer == "wav":
        return [Part(window, damage) for window, damage in wav_parts(source, _MAX_PARTS)]
    if demuxer == "ogg":
        starts = _ogg_starts(source)
        ends = [*starts[1:], source.size]
        return [Part(source.window(start, end)) for start, end in zip(starts, ends, strict=True)]
    return [Part(source, _missing(_promised_bytes(source, demuxer), source.size))]


def _missing(promised: int, present: int) -> str:
    return f"The file ends after {present} of {promised} bytes." if promised > present else ""


def _ogg_starts(source: Source) -> list[int]:
    starts, behind_first = [0], 0
    for at in _find_all(source, _OGG_FIRST):
        # The first pages of streams that run side by side follow each other directly.
        if at > behind_first and len(starts) < _MAX_PARTS and at:
            starts.append(at)
        behind_first = at + _ogg_page_bytes(source.at(at, _OGG_HEADER + 255))
    return starts


def _ogg_page_bytes(page: bytes) -> int:
    segments = page[_OGG_HEADER - 1] if len(page) >= _OGG_HEADER else 0
    return _OGG_HEADER + segments + sum(page[_OGG_HEADER : _OGG_HEADER + segments])


def _find_all(source: Source, pattern: bytes) -> list[int]:
    found = []
    for start in range(0, source.size, _SCAN_BYTES):
        block = source.at(start, _SCAN_BYTES + len(pattern) - 1)
        at = block.find(pattern)
        while at >= 0:
            found.append(start + at)
            at = block.find(pattern, at + 1)
    return found


def _promised_bytes(source: Source, demuxer: str) -> int:
    if demuxer == "matroska":
        return _matroska_bytes(source.at(0, 4096))
    return _mpeg_bytes(source.at(0, 256)) if demuxer == "mp3" else 0


def _matroska_bytes(head: bytes) -> int:
    at = head.find(_SEGMENT_ID)
    if at < 0 or at + 12 > len(head):
        return 0
    width = 9 - head[at + 4].bit_length()
    if not 1 <= width <= 8:
        return 0
    unknown = (1 << 7 * width) - 1
    size = int.from_bytes(head[at + 4 : at + 4 + width]) & unknown
    # All bits set: a recorder that could not know.
    return 0 if size == unknown else at + 4 + width + size


def _mpeg_bytes(head: bytes) -> int:
    """What LAME's information frame says about the bytes from itself on."""
    for name in (b"Xing", b"Info"):
        at = head.find(name)
        if at >= 0 and head[:1] == b"\xff" and len(head) >= at + 16:
            flags = int.from_bytes(head[at + 4 : at + 8])
            field = at + 8 + (4 if flags & 1 else 0)
            return int.from_bytes(head[field : field + 4]) if flags & 2 else 0
    return 0
