"""Every failure of every route in OpenAI's envelope: ``{"error": {message, type, param, code, x_asr: {layer}}}``."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from attrs import Factory, frozen
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from asr_core.errors import AsrError, AuthenticationError, DeadlineError, InvalidRequestError, OverloadedError

RETRY_AFTER_S = 1
"""What a refused caller is told to wait; the openai client honours it."""

INTERNAL = "internal_error"

SHOWN_PATH = 200
"""Characters of an unknown path that are repeated to whoever sent it."""

logger = logging.getLogger(__name__)


@frozen
class Problem:
    """One failure as the caller sees it."""

    status: int
    message: str
    type: str = InvalidRequestError.type
    param: str | None = None
    code: str | None = None
    layer: str = "http"
    headers: Mapping[str, str] = Factory(dict)

    @property
    def body(self) -> dict[str, Any]:
        """The envelope, its four keys always present."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error | {"x_asr": {"layer": self.layer}}}

    def response(self) -> Response:
        """The envelope as an answer of its own, in ASCII: what it repeats may be half a character."""
        return Response(json.dumps(self.body, separators=(",", ":")), self.status, self.headers, "application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """Starlette's handler for errors raised on purpose."""
    return problem_of(error, request).response()


def problem_of(error: Exception, request: Request) -> Problem:
    """What ``request`` is told of ``error``; a fault of ours is logged with its traceback."""
    problem = _problem(error, request)
    if problem.status >= 500 and not isinstance(error, OverloadedError | DeadlineError):
        logger.error("request %s failed", request.state.request_id, exc_info=error)
    return problem


def _problem(error: Exception, request: Request) -> Problem:
    if isinstance(error, AsrError):
        return _raised(error, request)
    if isinstance(error, HTTPException):
        return _refused(error, request)
    return Problem(500, _internal(request), "server_error", code=INTERNAL, layer="server")


def _raised(error: AsrError, request: Request) -> Problem:
    # A message that quotes a library's exception may quote paths and prompts too.
    foreign = error.status >= 500 and error.__cause__ is not None and not isinstance(error.__cause__, AsrError)
    message, code = (_internal(request), INTERNAL) if foreign else (_with_option(error), error.code)
    return Problem(error.status, message, error.type, error.param, code, error.layer, _headers(error))


def _with_option(error: AsrError) -> str:
    """The message, with the option of the server that sets the limit it is about."""
    if error.setting is None:
        return error.message
    return f"{error.message.rstrip('.')} (set by --{error.setting.replace('_', '-')})"


def _headers(error: AsrError) -> Mapping[str, str]:
    if isinstance(error, OverloadedError):
        return {"Retry-After": str(RETRY_AFTER_S)}
    return {"WWW-Authenticate": "Bearer"} if isinstance(error, AuthenticationError) else {}


def _refused(error: HTTPException, request: Request) -> Problem:
    """Refusals of the router: no such path, or not with this method."""
    target = f"{request.method} {request.url.path[:SHOWN_PATH]}"
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return Problem(404, f"Unknown request URL: {target}", code="unknown_url")
    if error.status_code == 405:
        message = f"Not allowed: {target}; allowed here: {headers.get('Allow', 'nothing')}"
        return Problem(405, message, code="method_not_allowed", headers=headers)
    return Problem(error.status_code, error.detail, headers=headers)


def _internal(request: Request) -> str:
    return f"The server failed on this request; its log tells more under {request.state.request_id}."
