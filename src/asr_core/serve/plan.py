"""POST a recording or a length, get told how it would be cut; nothing is transcribed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import BinaryIO

from attrs import frozen
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from asr_core.errors import InvalidRequestError
from asr_core.loading import ServedModel
from asr_core.plan import Plan, Planner
from asr_core.serve.call import read_file
from asr_core.serve.catalog import Catalog
from asr_core.serve.chunking import read_chunking
from asr_core.serve.exchange import Exchange
from asr_core.serve.fields import FIELDS, Field, Given
from asr_core.serve.form import FILE, read_form
from asr_core.serve.presence import while_connected
from asr_core.serve.traffic import Traffic
from asr_core.types import ServerVad, UploadLimits

PATH = "/v1/audio/plan"
DURATION = Field("duration", "Seconds of sound to think of, in place of a file.", "number", low=0.0)
PLAN_FIELDS = {field.name: field for field in (FIELDS[FILE], DURATION, FIELDS["model"], FIELDS["chunking_strategy"])}


@frozen(eq=False)
class Plans:
    """The route over the models of one server."""

    catalog: Catalog
    limits: UploadLimits
    traffic: Traffic
    planners: Mapping[ServedModel, Planner]

    @classmethod
    def of(cls, catalog: Catalog, models: Mapping[str, ServedModel], limits: UploadLimits, traffic: Traffic) -> Plans:
        """A planner for each of ``models``, which plugins are asked about now and not by callers."""
        planners = {
            served: Planner.of(served.hooks, served.model, served.splitting, limits) for served in models.values()
        }
        return cls(catalog, limits, traffic, planners)

    async def create(self, request: Request) -> Response:
        """Answer one upload, which is bounded as one to transcribe is.

        The exchange is not told the model, whose metrics are about transcriptions.
        """
        self.traffic.admit()
        async with read_form(request) as form:
            given = Given(form)
            planner = self.planners[self.catalog.find(given.require(FIELDS["model"]))]
            given.check_known(PLAN_FIELDS.values())
            server_vad, seconds = read_chunking(form), given.value(DURATION)
            if seconds is None:
                work = _of_file(planner, read_file(form, self.limits), server_vad, request.state.exchange)
                plan = await while_connected(request.receive, work)
            elif form.getlist(FILE):
                raise InvalidRequestError(f"give {FILE} or {DURATION.name}, and not both", param=DURATION.name)
            else:
                plan = planner.of_duration(seconds)
        return JSONResponse(plan.as_dict())


async def _of_file(planner: Planner, file: BinaryIO, server_vad: ServerVad | None, exchange: Exchange) -> Plan:
    waveform = await exchange.sound.read(file, planner.splitting.native.sample_rate)
    return await asyncio.to_thread(planner.of_sound, waveform, server_vad)
