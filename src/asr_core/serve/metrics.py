"""What a server counts, in the text format of Prometheus; no label has more values than there are routes and models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from asr_core.formats import covered
from asr_core.serve.catalog import Catalog
from asr_core.serve.decoding import Decoder
from asr_core.serve.limits import Uploads
from asr_core.serve.traffic import Traffic
from asr_core.types import Transcript

if TYPE_CHECKING:
    from asr_core.serve.exchange import Exchange

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

NO_ROUTE = "none"
"""Route of whatever is none: a path is the caller's to invent."""

NOW = frozenset({"queued", "running", "entries", "bytes"})
"""Statistics of engines and encoders that say how it is now; the others count since start."""

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
RATIOS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The counters of one server, and what its parts tell when asked."""

    def __init__(self, catalog: Catalog, traffic: Traffic, decoder: Decoder, uploads: Uploads) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_Parts(catalog))
        registry.register(_Now(traffic, decoder, uploads))
        self._requests = Counter(
            "asr_requests",
            "Requests that ended; 499: the client left.",
            ["route", "status", "model"],
            registry=registry,
        )
        self._seconds = Histogram(
            "asr_request_seconds", "From its head to its end.", ["route", "model"], buckets=SECONDS, registry=registry
        )
        self._first_event = Histogram(
            "asr_first_event_seconds", "From a request's head to its stream's first event.", ["model"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._audio = Counter("asr_audio_seconds", "Decoded sound.", ["model"], registry=registry)
        self._ratio = Histogram(
            "asr_real_time_factor", "Seconds from upload to answer, per second of sound; 200 only.", ["model"],
            buckets=RATIOS, registry=registry,
        )  # fmt: skip
        self._guards = Counter(
            "asr_guards", "Times a safeguard stepped in, as x_asr of the transcript tells.", ["model", "kind"],
            registry=registry,
        )  # fmt: skip
        self._coverage = Counter(
            "asr_coverage_seconds", "Sound of transcripts by what became of it.", ["model", "state"], registry=registry
        )

    def count(self, exchange: Exchange, scope: Scope, ended: float) -> None:
        """Count a request that ended then, on the monotonic clock."""
        route, model = getattr(scope.get("route"), "path", NO_ROUTE), exchange.model or ""
        self._requests.labels(route, str(exchange.status), model).inc()
        self._seconds.labels(route, model).observe(ended - exchange.began)
        if exchange.model is None:
            return
        self._audio.labels(model).inc(exchange.sound.seconds)
        if exchange.transcript is not None:
            self._count_coverage(model, exchange.transcript)
        if exchange.first_event is not None:
            self._first_event.labels(model).observe(exchange.first_event - exchange.began)
        if exchange.status == 200 and exchange.sound.began and exchange.sound.seconds:
            self._ratio.labels(model).observe((ended - exchange.sound.began) / exchange.sound.seconds)

    def _count_coverage(self, model: str, transcript: Transcript) -> None:
        for guard in transcript.guards:
            self._guards.labels(model, guard.kind).inc()
        for state, seconds in covered(transcript).items():
            self._coverage.labels(model, state).inc(seconds)

    def render(self) -> bytes:
        """All of them."""
        return generate_latest(self._registry)


class _Parts(Collector):
    """The statistics of every model's engine and encoder, which count for themselves."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Any] = {}
        for model, parts in self._catalog.statistics().items():
            for part, statistics in parts.items():
                for name, value in (statistics or {}).items():
                    kind = GaugeMetricFamily if name in NOW else CounterMetricFamily
                    title = f"asr_{part}_{name}"
                    family = families.setdefault(title, kind(title, f"See x_asr in /health: {name}.", labels=["model"]))
                    family.add_metric([model], value)
        yield from families.values()


class _Now(Collector):
    """What is in progress."""

    def __init__(self, traffic: Traffic, decoder: Decoder, uploads: Uploads) -> None:
        self._traffic = traffic
        self._decoder = decoder
        self._uploads = uploads

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("asr_requests_running", "Requests in progress, this one too.", self._traffic.running)
        yield GaugeMetricFamily("asr_audio_seconds_held", "Decoded sound in memory.", self._decoder.held)
        yield GaugeMetricFamily("asr_upload_bytes_held", "Bytes of uploads in progress.", self._uploads.held)
