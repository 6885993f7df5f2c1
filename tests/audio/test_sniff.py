from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from asr_core.audio import load
from asr_core.errors import AudioError, NoAudioError, UnknownFormatError


class Target:
    """A wav file and a web server that both notice being asked for."""

    def __init__(self, folder: Path, server: socket.socket) -> None:
        self.path = folder / "secret.wav"
        self.server = server
        self.url = f"http://127.0.0.1:{server.getsockname()[1]}/secret.wav"

    def was_touched(self) -> bool:
        """Whether anybody waits at the pipe or at the socket."""
        try:
            # Fails for as long as nobody has opened the pipe for reading.
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
            return True
        except OSError:
            pass
        try:
            connection, _ = self.server.accept()
        except BlockingIOError:
            return False
        connection.close()
        return True


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        target = Target(tmp_path, server)
        os.mkfifo(target.path)
        yield target


PLAYLISTS = {
    "ffconcat": "ffconcat version 1.0\nfile '{0}'\n",
    "ffconcat unsafe": "ffconcat version 1.0\noption safe 0\nfile {0}\n",
    "m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{0}\n#EXT-X-ENDLIST\n",
    "m3u": "#EXTM3U\n#EXTINF:10,x\n{0}\n",
    "pls": "[playlist]\nFile1={0}\nNumberOfEntries=1\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>{0}</BaseURL></MPD>',
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\na=control:{0}\n",
    "imf": '<?xml version="1.0"?><CompositionPlaylist>{0}</CompositionPlaylist>',
}


@pytest.mark.parametrize("place", ["path", "name", "url"])
@pytest.mark.parametrize("kind", PLAYLISTS)
def test_playlists_are_refused_and_nothing_they_name_is_read(target: Target, kind: str, place: str) -> None:
    where = {"path": str(target.path), "name": target.path.name, "url": target.url}[place]
    text = PLAYLISTS[kind].format(where)
    upload = target.path.with_name("upload.wav")
    upload.write_text(text)
    for source in (text.encode(), upload):
        with pytest.raises(UnknownFormatError, match="looks like text"):
            load(source, 16000)
    assert not target.was_touched()


def test_the_observer_notices(target: Target) -> None:
    reader = os.open(target.path, os.O_RDONLY | os.O_NONBLOCK)
    assert target.was_touched()
    os.close(reader)
    assert not target.was_touched()
    with socket.create_connection(target.server.getsockname()):
        assert target.was_touched()


def box(name: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", 8 + len(body)) + name + body


def reference_movie(entry: bytes) -> bytes:
    """A movie whose one track of sound is kept in the file that ``entry`` (a dref entry) names."""
    sound = bytes(6) + struct.pack(">H8xHHHHI", 1, 1, 16, 0, 0, 16000 << 16)
    table = box(
        b"stbl",
        box(b"stsd", bytes(4), struct.pack(">I", 1), box(b"sowt", sound)),
        box(b"stts", bytes(4), struct.pack(">III", 1, 8000, 1)),
        box(b"stsc", bytes(4), struct.pack(">IIII", 1, 1, 8000, 1)),
        box(b"stsz", bytes(4), struct.pack(">II", 2, 8000)),
        box(b"stco", bytes(4), struct.pack(">II", 1, 44)),
    )
    information = box(
        b"minf", box(b"smhd", bytes(8)), box(b"dinf", box(b"dref", bytes(4), struct.pack(">I", 1), entry)), table
    )
    media = box(
        b"mdia",
        box(b"mdhd", bytes(12), struct.pack(">II", 16000, 8000), bytes(4)),
        box(b"hdlr", bytes(8), b"soun", bytes(13)),
        information,
    )
    track = box(b"trak", box(b"tkhd", bytes(12), struct.pack(">I", 1), bytes(68)), media)
    movie = box(b"moov", box(b"mvhd", bytes(12), struct.pack(">II", 1000, 500), bytes(80)), track)
    return box(b"ftyp", b"qt  ", bytes(4), b"qt  ") + movie


def alias(path: str) -> bytes:
    """A Macintosh alias record to ``path``, as FFmpeg reads it: volume, file name, levels, absolute path (type 2)."""
    volume, name = b"disk".ljust(27, b"\0"), os.path.basename(path).encode()
    record = bytes(10) + b"\x04" + volume + bytes(12) + bytes([len(name)]) + name.ljust(63, b"\0") + bytes(16)
    record += struct.pack(">HH", 1, 1) + bytes(16)
    full = path.encode()
    record += struct.pack(">HH", 2, len(full)) + full + b"\0" * (len(full) % 2)
    record += struct.pack(">hH", -1, 0)
    return box(b"alis", bytes(4), record)


@pytest.mark.parametrize("kind", ["alias", "url path", "url web"])
def test_movies_that_keep_their_sound_elsewhere_read_nothing(target: Target, kind: str) -> None:
    entry = {
        "alias": alias(str(target.path)),
        "url path": box(b"url ", bytes(4), f"file://{target.path}".encode(), b"\0"),
        "url web": box(b"url ", bytes(4), target.url.encode(), b"\0"),
    }[kind]
    movie = reference_movie(entry)
    try:
        samples = load(movie, 16000).samples
    except AudioError:
        samples = None
    # Those of which FFmpeg does not even read the address are played from the movie itself, which is harmless.
    assert samples is None or len(samples) * 2 <= len(movie)
    assert not target.was_touched()


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(200),
        b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(range(256)) * 8,
        b"GIF89a" + bytes(200),
        b"\x00\x00\x00\x18ftypavif\x00\x00\x00\x00avifmif1" + bytes(200),
        b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(200),
        b"PK\x03\x04" + bytes(200),
        b"RIFF\x24\x00\x00\x00AVI LIST" + bytes(200),
        b"RIFF\x24\x00\x00\x00WEBPVP8 " + bytes(200),
        b"\x7fELF" + bytes(200),
        bytes(5000),
        b"\xff" * 5000,
        b"R",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_audio_is_refused_with_the_formats_that_are(data: bytes) -> None:
    with pytest.raises(
        UnknownFormatError, match=r"Invalid file format\. Supported formats: \['aac', 'flac', 'm4a'"
    ) as e:
        load(data, 16000)
    assert (e.value.status, e.value.type, e.value.param) == (400, "invalid_request_error", "file")


@pytest.mark.parametrize(
    "text", ["1\n00:00:01,000 --> 00:00:02,000\nHello\n", "WEBVTT\n\n", "gr\u00fc\u00dfe " * 90, "{}"]
)
def test_text_named_wav_is_called_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "speech.wav"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnknownFormatError, match="looks like text"):
        load(path, 16000)


def test_an_empty_file_is_called_empty() -> None:
    with pytest.raises(NoAudioError, match="empty"):
        load(b"", 16000)


def test_names_do_not_matter(tmp_path: Path, make: SimpleNamespace) -> None:
    path = tmp_path / "concat:secret.m3u8"
    path.write_bytes(make.riff(make.tone(1.0, 16000), format="FLAC"))
    for source in (path, str(path)):
        assert len(load(source, 16000).samples) == 16000
