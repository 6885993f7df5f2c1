"""The options that bound what callers of a server may do, each named like the field it sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click
from attrs import fields_dict

from asr_core.types import ServerLimits, UploadLimits

_EACH = {
    "max_bytes": "Bytes of one uploaded file; more are answered 413.",
    "min_seconds": "Least sound in one upload; less is answered 400.",
    "max_seconds": "Most sound in one upload, counted while decoding; more is answered 400.",
    "max_decode_seconds": "Time to decode one upload; what takes longer is answered 400.",
}
_ALL = {
    "max_total_bytes": "Bytes of all uploads in progress together; one too many is answered 429 at once.",
    "max_total_seconds": "Decoded sound of all requests in progress; one too many waits, then gets 429.",
    "max_decodes": "Uploads decoded at once; one too many waits, then gets 429.",
    "max_wait": "Seconds to wait for room or a turn to decode before the answer is 429.",
    "request_timeout": "Seconds from the head of a request to its end; then the answer is 504.",
    "upload_timeout": "Seconds in which nothing of an upload arrives before the answer is 408.",
}


def upload_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add those about one upload to a command, which gets them as one ``limits``."""

    @wraps(command)
    def with_limits(*args: Any, **options: Any) -> None:
        command(*args, limits=UploadLimits(**{name: options.pop(name) for name in _EACH}), **options)

    return _with_options(UploadLimits, _EACH, with_limits)


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add all of them to a command, which gets them as one ``limits``."""

    @wraps(command)
    def with_limits(*args: Any, limits: UploadLimits, **options: Any) -> None:
        try:
            server = ServerLimits(limits, **{name: options.pop(name) for name in _ALL})
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        command(*args, limits=server, **options)

    return upload_options(_with_options(ServerLimits, _ALL, with_limits))


def _with_options(owner: type, helps: Mapping[str, str], command: Callable[..., None]) -> Callable[..., None]:
    # From the last on, as click lists decorators from the outermost in.
    for name, text in reversed(list(helps.items())):
        default = fields_dict(owner)[name].default
        range_ = click.IntRange(1) if isinstance(default, int) else click.FloatRange(0)
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, default=default, show_default=True, type=range_, help=text)(command)
    return command
