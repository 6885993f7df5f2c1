"""Work ends with its client, whenever it leaves."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from asr_core.serve.presence import while_connected


async def gone() -> Message:
    return {"type": "http.disconnect"}


async def here() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def work() -> str:
    return "done"


def test_the_result_of_work_is_its_own() -> None:
    assert asyncio.run(while_connected(here, work())) == "done"


def test_a_client_who_leaves_as_the_work_ends_has_left() -> None:
    """The message is read here, so who waits next would wait for it in vain."""
    with pytest.raises(ClientDisconnect):
        asyncio.run(while_connected(gone, work()))


def test_a_client_who_leaves_ends_the_work() -> None:
    ended: list[str] = []

    async def long() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("long")

    with pytest.raises(ClientDisconnect):
        asyncio.run(while_connected(gone, long()))
    assert ended == ["long"]
