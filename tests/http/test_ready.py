"""A server whose engine or encoder cannot go on says so to balancers, and why."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from attrs import evolve

from asr_core.serve import create_app
from asr_core.types import ServerLimits


class Hanging:
    """The part of an engine and of an encoder that ``/ready`` asks."""

    def health(self) -> str:
        return "a step has been running for 60 s"


@pytest.mark.parametrize("layer", ["engine", "encoder"])
def test_not_ready_while_something_hangs(fake: Any, layer: str) -> None:
    served = evolve(fake.served, **{layer: Hanging()})

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(create_app({"well": fake.served, "ill": served}, ServerLimits()))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.get("/ready")

    answer = asyncio.run(get())
    error = answer.json()["error"]
    assert (answer.status_code, error["message"]) == (503, "model 'ill': a step has been running for 60 s")
    assert error["x_asr"] == {"layer": layer}
    assert answer.headers["retry-after"] == "1"
