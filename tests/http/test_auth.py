"""A server with keys serves who shows one, and tells the others no more than OpenAI does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from asr_core.errors import AsrError, AuthenticationError
from asr_core.serve import Keys, read_keys

KEYS = "# the keys of the test\n\nkey-of-alice\n  key-of-bob  \n"


@pytest.fixture(scope="module")
def locked(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server for two callers."""
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(KEYS)
    return start("--model", "fake", "--host", "0.0.0.0", "--api-key-file", str(path))  # noqa: S104


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("key", ["key-of-alice", "key-of-bob"])
def test_the_client_shows_its_key(locked: Any, wav: Any, key: str) -> None:
    with openai.OpenAI(base_url=f"{locked.url}/v1", api_key=key, max_retries=0) as client:
        assert client.audio.transcriptions.create(model="fake", file=wav("let me in")).text == "let me in"
        assert [model.id for model in client.models.list()] == ["fake"]


def test_the_client_understands_the_refusal(locked: Any, wav: Any) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        locked.client().audio.transcriptions.create(model="fake", file=wav("let me in"))
    assert (caught.value.status_code, caught.value.code) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("key-of-mallory"),
        bearer("key-of-alice key-of-bob"),
        bearer("key-of-alic"),
        bearer("Key-Of-Alice"),
        bearer("# the keys of the test"),
        {"authorization": "key-of-alice"},
        {"authorization": "Basic key-of-alice"},
        {"authorization": b"Bearer \xff\xfe"},
        {"x-api-key": "key-of-alice"},
    ],
    ids=str,
)
def test_no_key_of_ours(locked: Any, headers: dict[str, Any]) -> None:
    answer = locked.http.get("/v1/models", headers=headers)
    error = answer.json()["error"]
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
    assert error["x_asr"] == {"layer": "auth"}
    for name in ("alice", "mallory", "alic"):
        assert name not in answer.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/audio/transcriptions"),
        ("POST", "/v1/audio/translations"),
        ("GET", "/v1/models/fake"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("GET", "/health/"),
        ("GET", "//health"),
        ("OPTIONS", "/v1/models"),
    ],
)
def test_what_needs_a_key(locked: Any, method: str, path: str) -> None:
    assert locked.http.request(method, path).status_code == 401
    assert locked.http.request(method, path, headers=bearer("key-of-bob")).status_code != 401


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_what_needs_none(locked: Any, path: str) -> None:
    assert locked.http.get(path).status_code == 200


def test_an_upload_is_refused_before_it_is_sent(locked: Any) -> None:
    connection = locked.connect()
    connection.sendall(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_who_has_a_key_set_is_not_warned(locked: Any) -> None:
    assert "warning" not in locked.output
    assert "-H 'Authorization: Bearer KEY'" in locked.output
    assert "key-of" not in locked.output


def test_no_page_of_another_site_is_let_in(server: Any) -> None:
    """A browser asks before it sends: without these headers it sends nothing."""
    headers = {"origin": "https://example.org", "access-control-request-method": "POST"}
    answer = server.http.options("/v1/audio/transcriptions", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "there is no key in"),
        ("# only\n", "there is no key in"),
        ("a key\n", "line 1 of .* printable ASCII without spaces"),
        ("good\nschlüssel\n", "line 2 of"),
    ],
)
def test_a_file_without_keys(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(content)
    with pytest.raises(AsrError, match=says) as caught:
        read_keys(path)
    assert "schlüssel" not in caught.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("missing", "binary"):
        with pytest.raises(AsrError, match="cannot be read"):
            read_keys(tmp_path / name)


def test_keys_in_memory_are_digests() -> None:
    keys = Keys(["key-of-alice"])
    assert "alice" not in repr(vars(keys))
    keys.check("bearer key-of-alice")
    with pytest.raises(AuthenticationError):
        keys.check("bearer key-of-bob")
    for empty in ("", "Bearer", "Bearer ", "Bearer   "):
        with pytest.raises(AuthenticationError, match="a key is needed"):
            keys.check(empty)


def test_without_keys_any_key_will_do(server: Any) -> None:
    assert server.http.get("/v1/models", headers=bearer("whatever")).status_code == 200
