"""What an upload is, told from its bytes alone; names and declared types lie."""

from __future__ import annotations

from attrs import frozen

from asr_core.audio._source import Source
from asr_core.errors import NoAudioError, UnknownFormatError

from . import _sync

SUPPORTED_FORMATS = ("aac", "flac", "m4a", "mkv", "mov", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm")
"""File types as people name them, each one a container on the allow-list."""

_HEAD_BYTES = 65536
# Not RIFX: FFmpeg opens it and plays its big-endian samples as little-endian ones, which is noise.
_RIFF_MAGICS = (b"RIFF", b"RF64", b"BW64")
_W64_MAGIC = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
_EBML_MAGIC = b"\x1a\x45\xdf\xa3"
# A QuickTime file may begin with its data or with padding; the index comes later.
_MOV_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
# The same container holds still pictures, which are of no use here and cost FFmpeg's image decoders.
_PICTURE_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis", b"crx ")


@frozen
class Kind:
    """The one FFmpeg demuxer that may read an upload, and the byte at which its container begins."""

    demuxer: str
    start: int = 0


def sniff(source: Source) -> Kind:
    """Name the demuxer for ``source``, or raise UnknownFormatError, or NoAudioError for an empty file.

    Tags in front (ID3v2) are skipped, as they say nothing about what follows them.
    """
    if source.size == 0:
        raise NoAudioError("The audio file is empty (0 bytes).")
    start = _after_tags(source)
    head = source.at(start, _HEAD_BYTES)
    demuxer = _by_magic(head, source.size - start) or _sync.find(head)
    if demuxer is None:
        raise UnknownFormatError(_refusal(head))
    return Kind(demuxer, start)


def _after_tags(source: Source) -> int:
    start = 0
    while (header := source.at(start, 10))[:3] == b"ID3" and len(header) == 10:
        if header[3] == 0xFF or any(byte > 0x7F for byte in header[6:]):
            break
        size = sum(byte << shift for byte, shift in zip(header[6:], (21, 14, 7, 0), strict=True))
        footer = 10 if header[5] & 0x10 else 0
        start += 10 + size + footer
    return min(start, source.size)


def _by_magic(head: bytes, size: int) -> str | None:
    if head[:4] in _RIFF_MAGICS and head[8:12] == b"WAVE":
        return "wav"
    if head[:16] == _W64_MAGIC:
        return "w64"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    if head[:4] == _EBML_MAGIC:
        return "matroska"
    return "mov" if _is_mov(head, size) else None


def _is_mov(head: bytes, size: int) -> bool:
    if head[4:8] not in _MOV_BOXES or head[8:12] in _PICTURE_BRANDS:
        return False
    # 0 means "to the end of the file", 1 that a 64-bit size follows.
    box = int.from_bytes(head[:4])
    return box in (0, 1) or 8 <= box <= max(size, 8) or head[4:8] in (b"ftyp", b"mdat", b"moov")


def _refusal(head: bytes) -> str:
    formats = ", ".join(f"'{name}'" for name in SUPPORTED_FORMATS)
    return f"Invalid file format. Supported formats: [{formats}]. {_description(head[:512])}"


def _description(head: bytes) -> str:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character cut in two by the end of what we looked at is still text.
        text = head[: error.start].decode("utf-8") if error.start >= len(head) - 3 else "\0"
    if all(letter.isprintable() or letter.isspace() for letter in text):
        return "The content looks like text, not like audio."
    return "The content does not begin like any of them."
