"""Containers without a magic number: MPEG audio and ADTS AAC, known by headers that follow each other."""

from __future__ import annotations

from collections.abc import Callable

_AGREEING = 3
_BITRATES = {
    # (MPEG-1, layer): kbit/s by index; index 0 is "free", 15 forbidden.
    (True, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES = (44100, 48000, 32000)


def find(head: bytes) -> str | None:
    """The demuxer ("mp3" or "aac") whose frames lie somewhere in ``head``, or None.

    Three headers in a row must agree, or two that reach the end exactly: recordings cut out of a stream begin in the
    middle of a frame, and text or pictures do not pass this.
    """
    at = head.find(b"\xff")
    while at >= 0:
        for demuxer, length in (("mp3", _mpeg_length), ("aac", _adts_length)):
            if _chain(head, at, length):
                return demuxer
        at = head.find(b"\xff", at + 1)
    return None


def _chain(head: bytes, at: int, length: Callable[[bytes], int]) -> bool:
    found = 0
    first = at
    while at + 8 <= len(head):
        step = length(head[at : at + 8])
        if not step:
            return False
        found += 1
        if found == _AGREEING:
            return True
        at += step
    # A file of one or two frames: nothing but frames from the first byte on.
    return found > 0 and first == 0 and len(head) < 65536 and at >= len(head) - 128


def _mpeg_length(header: bytes) -> int:
    """Bytes of the MPEG audio frame that begins with ``header``; 0 for none."""
    version, layer = header[1] >> 3 & 3, 4 - (header[1] >> 1 & 3)
    bitrate_index, rate_index = header[2] >> 4, header[2] >> 2 & 3
    if header[0] != 0xFF or header[1] < 0xE0 or version == 1 or layer == 4:
        return 0
    if bitrate_index in (0, 15) or rate_index == 3 or header[3] & 3 == 2:
        return 0
    mpeg1 = version == 3
    rate = _RATES[rate_index] >> {3: 0, 2: 1, 0: 2}[version]
    bits = 1000 * _BITRATES[mpeg1, layer][bitrate_index]
    padding = header[2] >> 1 & 1
    if layer == 1:
        return (12 * bits // rate + padding) * 4
    return (144 if mpeg1 or layer == 2 else 72) * bits // rate + padding


def _adts_length(header: bytes) -> int:
    """Bytes of the ADTS frame that begins with ``header``; 0 for none."""
    if header[0] != 0xFF or header[1] & 0xF6 != 0xF0 or header[2] >> 2 & 15 > 12:
        return 0
    length = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
    return length if length >= 8 else 0
