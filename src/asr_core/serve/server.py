"""One process that serves models: bind, load, announce, answer, drain, close."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from attrs import frozen
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette

from asr_core.engines.compute import Compute
from asr_core.errors import AsrError
from asr_core.loading import EngineOptions, ServedModel, open_model
from asr_core.plugins import Plugins
from asr_core.serve.app import create_app
from asr_core.serve.auth import Keys
from asr_core.serve.traffic import Traffic
from asr_core.types import ServerLimits

BACKLOG = 128


@frozen
class ServerOptions:
    """Where to listen (port 0 takes a free one), for whom, and how much of it.

    Running requests get ``drain_seconds`` once told to stop. A connection may be silent for ``idle_timeout`` seconds
    before, between and within the heads of requests, and so long its socket outlives its client.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    drain_seconds: float = 30.0
    idle_timeout: float = 10.0
    limits: ServerLimits = ServerLimits()
    keys: Keys | None = None


Wanted = tuple[str, str | None, EngineOptions]
"""A model's name or reference, the checkpoint to read in place of its own, and what runs it."""


def run(plugins: Plugins, wanted: Sequence[Wanted], options: ServerOptions) -> None:
    """Serve the ``wanted`` models until SIGTERM or SIGINT; a second signal does not wait.

    Raises:
        AsrError: the address is taken, or a model cannot be loaded.
    """
    with ExitStack() as stack:
        # Bound first: a taken port is found before minutes of loading, and nobody is let in before listen().
        listener = stack.enter_context(_bind(options))
        models = _open(plugins, wanted, stack)
        traffic = Traffic()
        app = create_app(models, options.limits, traffic, options.keys)
        listener.listen(BACKLOG)
        announce = partial(_announce, _url(options.host, listener), options, next(iter(models)))
        asyncio.run(_serve(app, listener, traffic, options, announce))


def _bind(options: ServerOptions) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise AsrError(f"cannot listen on {options.host} port {options.port}: {error}") from error
    return listener


def _open(plugins: Plugins, wanted: Sequence[Wanted], stack: ExitStack) -> dict[str, ServedModel]:
    compute = Compute()
    stack.callback(compute.close)
    models: dict[str, ServedModel] = {}
    for reference, checkpoint, engine in wanted:
        served = open_model(plugins, reference, engine, compute, checkpoint)
        stack.callback(served.close)
        if models.setdefault(served.card.name, served) is not served:
            raise AsrError(
                f"{reference!r} means {served.card.name!r}, which is served already: one server each, please"
            )
        print(served.placement, flush=True)
    return models


def _url(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _announce(url: str, options: ServerOptions, model: str) -> None:
    if options.keys is None and not _is_loopback(options.host):
        print(
            f"warning: {options.host} is no loopback address, and without a key everyone who reaches it is served",
            flush=True,
        )
    key = "" if options.keys is None else " -H 'Authorization: Bearer KEY'"
    print(f"serving on {url}", flush=True)
    print(f"try: curl {url}/v1/audio/transcriptions{key} -F model={model} -F file=@audio.wav", flush=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve(
    app: Starlette, listener: socket.socket, traffic: Traffic, options: ServerOptions, announce: Callable[[], None]
) -> None:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            traffic.expire(0)
        stop.set()

    async def drained() -> None:
        # The port stays open meanwhile: /ready says 503 to balancers, and late uploads get an answer, not a reset.
        await stop.wait()
        await traffic.drain(options.drain_seconds)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    # Only now would a signal be understood. Whoever connects at once waits in the backlog.
    announce()
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.keep_alive_timeout = options.idle_timeout
    config.errorlog = logging.getLogger("hypercorn")
    await serve(app, config, shutdown_trigger=drained)
