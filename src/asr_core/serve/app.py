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
from asr_core.serve.auth import KeyCheck, Keys
from asr_core.serve.catalog import Catalog
from asr_core.serve.decoding import Decoder
from asr_core.serve.endpoint import ENDPOINTS
from asr_core.serve.errors import on_error
from asr_core.serve.exchange import ExchangeMiddleware
from asr_core.serve.limits import BodyLimit, Uploads
from asr_core.serve.metrics import CONTENT_TYPE, Metrics
from asr_core.serve.openapi import PATH, OpenApi
from asr_core.serve.plan import PATH as PLAN
from asr_core.serve.plan import Plans
from asr_core.serve.speech import Speech
from asr_core.serve.traffic import Traffic
from asr_core.types import ServerLimits


def create_app(
    models: Mapping[str, ServedModel], limits: ServerLimits, traffic: Traffic | None = None, keys: Keys | None = None
) -> Starlette:
    """An application that serves ``models`` by their keys; pass ``traffic`` to drain it later.

    Without ``keys`` it serves everyone.
    """
    traffic = traffic or Traffic()
    catalog, decoder, uploads = Catalog(models), Decoder(limits), Uploads(limits)
    metrics = Metrics(catalog, traffic, decoder, uploads)
    information = _Information(catalog, traffic, metrics)
    speech = [
        Route(endpoint.path, Speech(catalog, limits.upload, traffic, task).create, methods=["POST"])
        for task, endpoint in ENDPOINTS.items()
    ]
    app = Starlette(
        routes=[
            *speech,
            Route(PLAN, Plans.of(catalog, models, limits.upload, traffic).create, methods=["POST"]),
            Route("/v1/models", information.models),
            Route("/v1/models/{id:path}", information.model),
            Route("/health", information.health),
            Route("/ready", information.ready),
            Route("/metrics", information.metrics),
            Route(PATH, OpenApi.of(models).show),
        ],
        # The body limit is outermost, as every answer may come while the client is still sending.
        middleware=[
            Middleware(BodyLimit, uploads=uploads, traffic=traffic),
            Middleware(ExchangeMiddleware, traffic=traffic, decoder=decoder, metrics=metrics),
            Middleware(KeyCheck, keys=keys),
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
    counted: Metrics

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

    async def metrics(self, request: Request) -> Response:
        return Response(self.counted.render(), media_type=CONTENT_TYPE)
