"""The routes, and what stands around all of them."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from asr_core.errors import AsrError
from asr_core.loading import ServedModel
from asr_core.serve.catalog import Catalog
from asr_core.serve.errors import on_error
from asr_core.serve.exchange import ExchangeMiddleware
from asr_core.serve.limits import BodyLimit
from asr_core.serve.traffic import Traffic
from asr_core.serve.transcriptions import Transcriptions
from asr_core.types import UploadLimits


def create_app(models: Mapping[str, ServedModel], limits: UploadLimits, traffic: Traffic | None = None) -> Starlette:
    """An application that serves ``models`` by their keys; pass ``traffic`` to drain it later."""
    traffic = traffic or Traffic()
    catalog = Catalog(models)
    transcriptions = Transcriptions(catalog, limits, traffic)
    information = _Information(catalog, traffic)
    app = Starlette(
        routes=[
            Route("/v1/audio/transcriptions", transcriptions.create, methods=["POST"]),
            Route("/v1/models", information.models),
            Route("/v1/models/{id:path}", information.model),
            Route("/health", information.health),
            Route("/ready", information.ready),
        ],
        # The body limit is outermost, as every answer may come while the client is still sending.
        middleware=[
            Middleware(BodyLimit, limits=limits, traffic=traffic),
            Middleware(ExchangeMiddleware, traffic=traffic),
        ],
        exception_handlers={AsrError: on_error, HTTPException: on_error},
    )
    # A redirected upload would be sent twice, and the answer would have no envelope.
    app.router.redirect_slashes = False
    return app


@frozen(eq=False)
class _Information:
    """The routes that only tell."""

    catalog: Catalog
    traffic: Traffic

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": self.catalog.describe_all()})

    async def model(self, request: Request) -> Response:
        return JSONResponse(self.catalog.describe(request.path_params["id"]))

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "x_asr": {"models": self.catalog.statistics()}})

    async def ready(self, request: Request) -> Response:
        self.traffic.admit()
        self.catalog.check_health()
        return JSONResponse({"status": "ready"})
