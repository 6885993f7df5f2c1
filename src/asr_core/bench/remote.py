"""A server that speaks OpenAI's transcription API, asked as its callers ask it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from attrs import define

from asr_core.bench.drive import Reply, Request, RequestFailed
from asr_core.bench.score import missing
from asr_core.errors import BenchError

if TYPE_CHECKING:
    import httpx

PATH = "/v1/audio/transcriptions"

TIMEOUT_S = 3600.0
"""For one request: a benchmark waits for what is slow and says how slow it was."""


class Remote:
    """One connection pool for all callers; ``stream`` asks for the text as it is decoded.

    Raises:
        BenchError: there is no HTTP client, or ``url`` is none.
    """

    def __init__(self, url: str, model: str, *, stream: bool = False, key: str | None = None) -> None:
        try:
            import httpx
        except ImportError as error:
            raise missing(error) from error
        self._model, self._stream = model, stream
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=None)
        try:
            self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, limits=limits)
            self._broken = httpx.HTTPError
        except (httpx.InvalidURL, ValueError) as error:
            raise BenchError(f"url {url!r} is none: {error}", param="url") from error

    def __call__(self, request: Request) -> Reply:
        """Send one and wait for its whole text.

        Raises:
            RequestFailed: the server refused it, or broke off.
        """
        form = {"model": self._model, "response_format": "json"}
        if language := request.sound.line.language:
            form["language"] = language
        if self._stream:
            form["stream"] = "true"
        try:
            with self._client.stream("POST", PATH, data=form, files={"file": ("sound.wav", request.wav)}) as answer:
                return _streamed(answer) if self._stream and answer.is_success else _whole(answer)
        except self._broken as error:
            raise RequestFailed(type(error).__name__, str(error)) from error

    def facts(self) -> dict[str, Any]:
        """What the server says of the model, if it says more than its name.

        Raises:
            BenchError: the server cannot be reached.
        """
        try:
            answer = self._client.get(f"/v1/models/{self._model}")
        except self._broken as error:
            raise BenchError(f"url {self._client.base_url} cannot be reached: {error}", param="url") from error
        with suppress(ValueError, AttributeError):
            return dict(answer.json().get("x_asr") or {}) if answer.is_success else {}
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def _whole(answer: httpx.Response) -> Reply:
    body = _object(answer.read())
    if answer.is_success and isinstance(body.get("text"), str):
        return Reply(body["text"])
    raise _refusal(f"HTTP {answer.status_code}", body)


def _streamed(answer: httpx.Response) -> Reply:
    said = _Said()
    for line in answer.iter_lines():
        if line.startswith("data: ") and said.hear(_object(line.removeprefix("data: "))):
            return Reply(said.text, said.first_at)
    raise RequestFailed("stream", "the stream has no end")


@define
class _Said:
    """The text that events add up to."""

    text: str = ""
    first_at: float | None = None

    def hear(self, event: dict[str, Any]) -> bool:
        """Take one event; whether it was the last."""
        if "error" in event:
            raise _refusal("stream", event)
        if event.get("type") == "transcript.text.delta":
            self.first_at = self.first_at or time.monotonic()
            self.text += str(event.get("delta"))
        if event.get("type") != "transcript.text.done":
            return False
        if event.get("text") != self.text:
            raise RequestFailed("stream", "the deltas do not add up to the text")
        return True


def _object(text: str | bytes) -> dict[str, Any]:
    with suppress(ValueError):
        if isinstance(body := json.loads(text), dict):
            return body
    return {}


def _refusal(kind: str, body: dict[str, Any]) -> RequestFailed:
    error = body.get("error")
    error = error if isinstance(error, dict) else {}
    return RequestFailed(" ".join([kind, *_codes(error)]), str(error.get("message") or "no reason given"))


def _codes(error: dict[str, Any]) -> Iterable[str]:
    return (str(error[name]) for name in ("code",) if error.get(name))
