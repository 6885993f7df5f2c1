"""Where the sound of a wav file really ends: its header is often wrong, in both directions."""

from __future__ import annotations

from collections.abc import Iterator

from asr_core.audio._source import Source

_MAX_CHUNKS = 4096
# Written by recorders that could not seek back: 0, 2^32-1, or something near 2^31 or 2^32.
_LIVE_SIZE = 0x7FFF0000
# The smallest thing that can be another chunk: a name and a size.
_HEADER_BYTES = 8
_ID3V1_BYTES = 128
_KNOWN_TAILS = (b"LIST", b"id3 ", b"ID3 ", b"bext", b"iXML", b"_PMX", b"JUNK")


def wav_parts(source: Source, most: int) -> list[tuple[Source, str]]:
    """The RIFF, RF64 and BW64 files that follow each other in ``source``, each ending with its last byte of sound.

    Beside each, one sentence about sound that is missing, or "". ``ignore_length`` makes FFmpeg read to that end.
    """
    found: list[tuple[Source, str]] = []
    start: int | None = 0
    while start is not None and len(found) < most:
        file = source.window(start)
        end, damage = _extent(file)
        found.append((file.window(0, end), damage))
        following = next((tail for at in (end + end % 2, end) if (tail := _tail(file, at)) is not None), None)
        start = start + following if following is not None and _is_riff(file, following) else None
    return found


def _is_riff(source: Source, at: int) -> bool:
    head = source.at(at, 12)
    return head[:4] == b"RIFF" and head[8:] == b"WAVE"


def _extent(source: Source) -> tuple[int, str]:
    """The byte behind the sound of one file, and what is missing."""
    long_size = 0
    for name, at, size in _chunks(source):
        if name == b"ds64":
            long_size = int.from_bytes(source.at(at + 8, 8), "little")
        if name == b"data":
            claimed = long_size if size == 0xFFFFFFFF and long_size else size
            return _data_extent(source, at, claimed)
    return source.size, ""


def _chunks(source: Source) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte and claimed size of each chunk up to the end of ``source``."""
    at = 12
    for _ in range(_MAX_CHUNKS):
        header = source.at(at, _HEADER_BYTES)
        if len(header) < _HEADER_BYTES:
            return
        size = int.from_bytes(header[4:], "little")
        yield header[:4], at + _HEADER_BYTES, size
        at += _HEADER_BYTES + size + size % 2


def _data_extent(source: Source, start: int, claimed: int) -> tuple[int, str]:
    present = source.size - start
    if claimed > present:
        live = claimed >= _LIVE_SIZE
        return source.size, "" if live else f"The file ends after {present} of {claimed} bytes of sound."
    end = start + claimed
    # Some writers leave out the byte that pads a chunk to an even size.
    after = (end, end + claimed % 2)
    if (
        source.size - end < _HEADER_BYTES
        or _is_id3v1(source, end)
        or any(_tail(source, at) is not None for at in after)
    ):
        return end, ""
    return source.size, ""


def _is_id3v1(source: Source, end: int) -> bool:
    return 0 <= source.size - _ID3V1_BYTES - end <= 1 and source.at(source.size - _ID3V1_BYTES, 3) == b"TAG"


def _tail(source: Source, at: int) -> int | None:
    """Where printable names and sizes lead from ``at``: another wav or the end of the file; None if ``at`` is sound."""
    for _ in range(_MAX_CHUNKS):
        header = source.at(at, _HEADER_BYTES)
        if len(header) < _HEADER_BYTES or _is_riff(source, at):
            return at
        if not all(0x20 <= byte < 0x7F for byte in header[:4]):
            return None
        size = int.from_bytes(header[4:], "little")
        at += _HEADER_BYTES + size + size % 2
        if at > source.size + 1:
            # A file cut short inside its last chunk.
            return source.size if header[:4] in _KNOWN_TAILS else None
    return None
