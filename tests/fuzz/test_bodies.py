"""Multipart bodies as clients, proxies and attackers write them: odd ones are read, broken ones are refused."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import quote

import pytest
import soundfile
from hypothesis import given, note, settings
from hypothesis import strategies as st

from asr_core.testing import tones

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

SAID = "ab"

FIELDS = {
    "model": ["fake", "fake-tones", "none", ""],
    "language": ["en", "auto", ""],
    "languages[]": ["en"],
    "prompt": ["", "a prompt"],
    "response_format": ["json", "text", "srt", "verbose_json", "vtt", "diarized_json"],
    "temperature": ["0", "1e-400", "nan", "0x1", "\u0661"],
    "stream": ["true", "false", "null"],
    "include[]": ["logprobs"],
    "timestamp_granularities[]": ["word", "segment"],
    "chunking_strategy": ["auto", "{}", "[" * 2000, '{"type": "server_vad", "threshold": 1e999}'],
    "chunking_strategy[type]": ["server_vad"],
    "behaviour": ["plain", "early_end", "loop", "speakers"],
}
"""Values that are something to the field of this name, good or bad."""

BOUNDARIES = st.one_of(
    st.sampled_from([b"b", b"-" * 70, b"'()+_,-./:=?", b"0" * 200]),
    st.text("abcXYZ0123456789'()+_,-./:=?", min_size=1, max_size=70).map(str.encode),
)
TYPES = st.sampled_from(
    [b"", b"audio/wav", b"text/plain; charset=utf-16", b"multipart/mixed; boundary=b", b"\xff\xfe", b"x" * 4000]
)
CHARSETS = st.sampled_from([b"x", b"utf-16", b"undefined", b"idna", b"hex", b"utf-7", b"\xe9", b'"', b"a" * 300])
NAMES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["录音.wav", 'a"b', "a\\", "a;b=c", "../../etc/passwd", "\x00", "n" * 1500, "%22%0d%0a"]),
)


def sound() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, tones.speak(SAID), tones.RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


SOUND = sound()


def pick(draw: st.DrawFn, *values: bytes) -> bytes:
    """One of them; drawn by number, as Hypothesis would quote all of them in every failure."""
    return values[draw(st.integers(0, len(values) - 1))]


def line(name: bytes, value: bytes) -> bytes:
    return name + b": " + value + b"\r\n"


def escaped(name: str) -> bytes:
    """As browsers write it between quotes."""
    return name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22").encode("utf-8", "replace")


def body_of(boundary: bytes, parts: list[tuple[bytes, bytes]]) -> bytes:
    """Each part is its header lines and its content."""
    pieces = [b"--" + boundary + b"\r\n" + head + b"\r\n" + content + b"\r\n" for head, content in parts]
    return b"".join([*pieces, b"--" + boundary + b"--\r\n"])


def request_of(content_type: bytes, framing: bytes, body: bytes, path: bytes = b"transcriptions") -> bytes:
    head = b"POST /v1/audio/" + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    return head + line(b"Content-Type", content_type) + framing + b"\r\n" + body


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


@st.composite
def odd_files(draw: st.DrawFn) -> bytes:
    """The header lines of a file part that are unusual, and allowed."""
    disposition = b'form-data; name="file"'
    name = draw(st.none() | NAMES)
    if name is not None:
        disposition += b'; filename="' + escaped(name.replace("\\", "/")) + b'"'
    if draw(st.booleans()):
        disposition += b"; filename*=UTF-8''" + quote(draw(NAMES), safe="", errors="replace").encode()
    lines = [line(draw(st.sampled_from([b"Content-Disposition", b"content-disposition"])), disposition)]
    if draw(st.booleans()):
        lines.append(line(b"Content-Type", draw(st.sampled_from([b"audio/wav", b"text/plain; charset=utf-16", b"x"]))))
    if draw(st.booleans()):
        lines.append(line(b"X-Extra", b"e" * draw(st.integers(1, 500))))
    return b"".join(draw(st.permutations(lines)))


def test_odd_forms_are_read(target: Any, fuzzing: settings) -> None:
    model = (line(b"Content-Disposition", b'form-data; name="model"'), b"fake")

    @fuzzing
    @given(BOUNDARIES, odd_files(), st.booleans(), st.none() | st.integers(100, 9000), st.booleans())
    def ask(boundary: bytes, file: bytes, first: bool, chunk: int | None, quoted: bool) -> None:
        parts = [(file, SOUND), model] if first else [model, (file, SOUND)]
        body = body_of(boundary, parts)
        plain = boundary.isalnum() and not quoted
        kind = b"multipart/form-data; boundary=" + (boundary if plain else b'"' + boundary + b'"')
        framing = line(b"Transfer-Encoding", b"chunked") if chunk else line(b"Content-Length", b"%d" % len(body))
        note(f"{kind!r} {file!r}")
        status, _, answer = target.send(request_of(kind, framing, chunked(body, chunk) if chunk else body))
        assert status == 200, answer
        assert json.loads(answer)["text"] == SAID

    ask()


@pytest.mark.parametrize("charset", [b"undefined", b"hex", b"nonsense", b"utf-16"])
def test_a_form_in_any_charset_is_no_failure_of_ours(target: Any, judge: Any, charset: bytes) -> None:
    body = body_of(b"b", [(line(b"Content-Disposition", b'form-data; name="model"'), b"fake")])
    kind = b"multipart/form-data; boundary=b; charset=" + charset
    status, media_type, answer = target.send(request_of(kind, line(b"Content-Length", b"%d" % len(body)), body))
    judge(status, media_type, answer)
    assert status in (400, 404)


def test_a_part_whose_head_is_too_long_is_told_so(target: Any) -> None:
    head = line(b"Content-Disposition", b'form-data; name="file"; filename="' + b"n" * 5000 + b'"')
    body = body_of(b"b", [(head, SOUND)])
    kind = b"multipart/form-data; boundary=b"
    status, _, answer = target.send(request_of(kind, line(b"Content-Length", b"%d" % len(body)), body))
    assert (status, json.loads(answer)["error"]["type"]) == (400, "invalid_request_error")
    assert "header size" in json.loads(answer)["error"]["message"]


@st.composite
def wild_parts(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A part with or without what it needs."""
    known = draw(st.none() | st.sampled_from(sorted(FIELDS)))
    if known:
        values = st.sampled_from(FIELDS[known])
        content = draw(values | values | values | st.text(max_size=20)).encode("utf-8", "replace")
    else:
        content = pick(draw, SOUND, b"", b"x" * 100_000, draw(st.binary(max_size=50)))
    name = (known or draw(st.just("file") | NAMES)).encode("utf-8", "replace")
    quoted = draw(st.sampled_from([b'"%s"', b'"%s"', b'"%s"', b"%s", b'"%s', b"'%s'"])) % name
    disposition = draw(st.sampled_from([b"form-data; name=%s", b"form-data; name=%s; filename=%s"]))
    disposition = disposition % ((quoted,) * disposition.count(b"%s"))
    wild = st.sampled_from([b"", b"form-data", b"attachment; name=file", b"form-data; name*=utf-8''file", b"\xff"])
    head = line(b"Content-Disposition", draw(wild) if draw(st.integers(0, 9)) == 9 else disposition)
    shape = draw(st.integers(0, 19))
    if shape == 5:
        head = b""
    elif shape == 1:
        head += head
    elif shape == 2:
        head += line(b"Content-Type", draw(TYPES))
    elif shape == 3:
        head = head.replace(b"\r\n", b"\n")
    elif shape == 4:
        head = draw(st.binary(max_size=60)) + head
    return head, content


def edited(draw: st.DrawFn, body: bytes) -> bytes:
    """``body`` with up to three cuts or insertions, mostly where its headers are."""
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, min(400, len(body))) | st.integers(0, len(body)))
        gone = draw(st.integers(0, 6) | st.integers(0, len(body)))
        new = draw(st.binary(max_size=6) | st.sampled_from([b"\r\n", b"--b", b"\r\n\r\n"]))
        body = body[:at] + new + body[at + gone :]
    return body


@st.composite
def wild_forms(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A content type and a body, which may not fit together."""
    boundary = draw(BOUNDARIES)
    fields = ((b"model", b"fake"), (b"file", SOUND))
    good = [(line(b"Content-Disposition", b'form-data; name="%s"' % name), value) for name, value in fields]
    few = draw(st.sampled_from([good, good, good, good[:1], good[1:]]))
    parts = draw(st.permutations([*few, *draw(st.lists(wild_parts(), max_size=3))]))
    body = body_of(boundary, parts * 30 if draw(st.integers(0, 15)) == 15 else parts)
    form = b"multipart/form-data; boundary="
    kind = form + b'"' + boundary + b'"'
    odd = (kind + b"; charset=" + draw(CHARSETS), b"Multipart/Mixed; boundary=" + boundary, form + b"other", form)
    kind = pick(draw, *[kind] * 6, *odd, b"multipart/form-data", b"text/plain", b"", b"\xe9\xff")
    return kind, edited(draw, body) if draw(st.booleans()) else body


@st.composite
def wild_requests(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A request that is HTTP, but perhaps nothing more; and whether its client waits for an answer."""
    kind, body = draw(wild_forms())
    path = draw(st.sampled_from([b"transcriptions", b"transcriptions", b"translations"]))
    if draw(st.booleans()):
        sized = line(b"Transfer-Encoding", b"chunked")
        return request_of(kind, sized, chunked(body, draw(st.integers(1000, 20_000))), path), True
    choice = draw(st.integers(0, 19))
    missing = draw(st.integers(1, 10**12)) if choice == 19 else 0
    stay = choice not in (17, 18)
    sent = body if stay else body[: draw(st.integers(0, len(body)))]
    return request_of(kind, line(b"Content-Length", b"%d" % (len(body) + missing)), sent, path), stay


def test_whatever_the_form_the_answer_is_text_or_a_refusal(target: Any, judge: Any, fuzzing: settings) -> None:
    @fuzzing
    @given(wild_requests())
    def ask(request: tuple[bytes, bool]) -> None:
        note(f"{request[0][:2000]!r}")
        status, media_type, answer = target.send(request[0], stay=request[1])
        assert status or not request[1], "no answer"
        if status:
            judge(status, media_type, answer)

    ask()


@st.composite
def broken_framing(draw: st.DrawFn) -> bytes:
    """What is no HTTP any more: lengths that are none, chunks that lie, heads that break off."""
    good = body_of(b"b", [(line(b"Content-Disposition", b'form-data; name="file"'), SOUND)])
    kind = b"multipart/form-data; boundary=b"
    length, chunks = line(b"Content-Length", b"%d" % len(good)), line(b"Transfer-Encoding", b"chunked")
    lengths = [b"0", b"-1", b"1e3", b"9" * 30, b"%d" % (len(good) - 1), "²".encode()]
    odd = [b" folded\r\n", b"no colon\r\n", b"\x00: \x00\r\n", line(b"X", b"y" * 100_000), chunks]
    coded = [line(b"Expect", b"100-continue"), line(b"Content-Encoding", b"gzip"), line(b"Content-Length", b"1")]
    framing = pick(
        draw,
        b"",
        chunks,
        line(b"Transfer-Encoding", b"gzip, chunked"),
        *(line(b"Content-Length", value) for value in lengths),
        *(more + length for more in (*odd, *coded)),
    )
    body = pick(draw, good, chunked(good, 1000), b"zz\r\n" + good, b"ffffffffffffffff\r\n" + good, b"")
    request = request_of(kind, framing, edited(draw, body))
    return edited(draw, request) if draw(st.booleans()) else request


def test_what_is_no_http_ends_the_connection_or_is_refused(target: Any, judge: Any, fuzzing: settings) -> None:
    @fuzzing
    @given(broken_framing())
    def ask(request: bytes) -> None:
        note(f"{request[:2000]!r}")
        status, media_type, answer = target.send(request)
        if status in (400, 431, 501) and not answer:
            return  # of Hypercorn, which got no request out of it
        if status:
            judge(status, media_type, answer)

    ask()
