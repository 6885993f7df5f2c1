"""``POST /v1/audio/plan``: what a transcription would do, told without doing it, and bounded like one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from asr_core.testing import tones
from asr_core.testing.http_contract import body_of, error_of
from asr_core.testing.server import Server

PLAN = "/v1/audio/plan"
LONG = "nine seconds of tones " * 40
"""70 s of them, of which the fake model takes 60 at once."""


@pytest.fixture(scope="module")
def narrow(start: Any) -> Server:
    """A server whose operator wants other numbers."""
    chunk = ("--chunk", "target_s=10", "--chunk", "fake:min_tail_s=4", "--vad", "energy")
    limits = ("--max-seconds", "30", "--min-seconds", "0.5", "--max-bytes", "1000000")
    return start("--model", "fake", *chunk, *limits)


def ask(server: Server, *parts: tuple[str, Any], model: str = "fake") -> Any:
    return server.post(("model", model), *parts, path=PLAN)


def numbers(answer: Any) -> dict[str, tuple[Any, ...]]:
    keys = ("value", "layer", "owner", "source", "knob")
    return {number["name"]: tuple(number[key] for key in keys) for number in body_of(answer)["numbers"]}


def clips(answer: Any) -> list[tuple[float, float, str]]:
    return [(round(clip["start"], 3), round(clip["end"], 3), clip["reason"]) for clip in body_of(answer)["clips"]]


def test_an_override_of_one_model_is_no_other_ones(start: Any) -> None:
    server = start("--model", "fake", "--model", "able", "--chunk", "target_s=20", "--chunk", "able:target_s=30")
    assert clips(ask(server, ("duration", "50"))) == [(0, 20, "limit"), (20, 40, "limit"), (40, 50, "end")]
    assert clips(ask(server, ("duration", "50"), model="able")) == [(0, 30, "limit"), (30, 50, "end")]


@pytest.mark.parametrize(
    ("duration", "cuts"),
    [
        ("40", [(0, 40, "end")]),
        ("60", [(0, 60, "end")]),
        ("60.5", [(0, 59.5, "tail"), (59.5, 60.5, "end")]),
        ("130", [(0, 60, "limit"), (60, 120, "limit"), (120, 130, "end")]),
    ],
)
def test_of_a_length_the_cuts_are_the_latest(server: Server, duration: str, cuts: list[Any]) -> None:
    body = body_of(answer := ask(server, ("duration", duration)))
    assert clips(answer) == cuts
    assert (body["model"], body["seconds"], body["exact"]) == ("fake", float(duration), False)


def test_whose_the_numbers_are(server: Server) -> None:
    told = numbers(ask(server, ("duration", "1")))
    policy, native = "asr_core.testing.fake:chunk_policy", "asr_core.testing.fake:native_limit"
    assert told["seconds"] == (60.0, "native_limit", "asr-fake", native, None)
    assert told["target_s"] == (None, "chunk_policy", "asr-fake", policy, "--chunk target_s=VALUE")
    assert told["clip_seconds"] == (60.0, "native_limit", "asr-fake", native, "--chunk target_s=VALUE")
    assert told["max_seconds"] == (14400.0, "upload_limits", "asr-core", "asr_core.types:UploadLimits", "--max-seconds")


def test_of_a_plugin_without_a_policy_the_default_is_the_cores(server: Server) -> None:
    told = numbers(ask(server, ("duration", "1"), model="echo"))
    assert told["target_s"][1:4] == ("chunk_policy", "asr-core", "asr_core.types:ChunkPolicy")


def test_what_the_operator_changed_is_the_operators(narrow: Server) -> None:
    told = numbers(ask(narrow, ("duration", "23")))
    assert told["target_s"] == (10.0, "chunk_policy", "operator", "--chunk", "--chunk target_s=VALUE")
    assert told["min_tail_s"][:3] == (4.0, "chunk_policy", "operator")
    assert told["search_s"][2] == "asr-fake"
    assert told["max_seconds"] == (30.0, "upload_limits", "operator", "--max-seconds", "--max-seconds")
    assert told["seconds"][0] == 60.0
    assert told["clip_seconds"][:3] == (10.0, "chunk_policy", "operator")
    assert clips(ask(narrow, ("duration", "23"))) == [(0, 10, "limit"), (10, 19, "tail"), (19, 23, "end")]
    described = body_of(narrow.http.get("/v1/models/fake"))["x_asr"]
    assert (described["chunk_policy"]["target_s"], described["vad"]) == (10.0, "energy")


def test_a_plan_is_what_becomes_of_the_upload(server: Server, wav: Any) -> None:
    file = wav(LONG)
    plan = body_of(ask(server, ("file", file)))
    coverage = body_of(server.post(("model", "fake"), ("file", file)))["x_asr"]["coverage"]
    assert plan["exact"]
    assert len(plan["clips"]) == 2
    assert [(round(clip["start"] * tones.RATE), round(clip["end"] * tones.RATE)) for clip in plan["clips"]] == [
        (stretch["start_sample"], stretch["end_sample"]) for stretch in coverage
    ]


def test_nothing_is_generated(server: Server, wav: Any) -> None:
    before = server.wait_for_engine("fake", running=0)
    ask(server, ("file", wav("abc")))
    assert server.engine("fake") == before


@pytest.mark.parametrize(
    ("parts", "param", "says"),
    [
        ([], "file", "you must provide file"),
        ([("duration", "1"), ("file", b"x")], "duration", "file or duration, and not both"),
        ([("duration", "1"), ("file", b"")], "duration", "file or duration, and not both"),
        ([("duration", "nan")], "duration", "finite"),
        ([("duration", "1e999")], "duration", "finite"),
        ([("duration", "-1")], "duration", "at least 0"),
        ([("duration", "0")], "duration", "0.1 s is the least taken"),
        ([("duration", "1"), ("duration", "2")], "duration", "more than once"),
        ([("duration", "14401")], "duration", "longer than the 14400 s this endpoint takes (set by --max-seconds)"),
        ([("file", b"")], "file", "file is empty"),
        ([("file", b"no sound at all")], "file", ""),
        ([("duration", "1"), ("language", "en")], "language", "known are chunking_strategy, duration, file, model"),
        ([("duration", "1"), ("chunking_strategy", "no")], "chunking_strategy", "must be 'auto' or an object"),
    ],
)  # fmt: skip
def test_what_is_refused(server: Server, parts: list[tuple[str, Any]], param: str, says: str) -> None:
    error = error_of(ask(server, *parts), 400)
    assert error["param"] == param
    assert says in error["message"]


def test_a_model_that_is_not_served(server: Server) -> None:
    assert error_of(ask(server, ("duration", "1"), model="fakee"), 404)["code"] == "model_not_found"


def test_without_a_form(server: Server) -> None:
    error_of(server.http.post(PLAN, json={"model": "fake", "duration": 1}), 400)
    error_of(server.http.get(PLAN), 405)


def test_it_is_bounded_as_an_upload_is(narrow: Server, wav: Any) -> None:
    for seconds, option in ((31, "max-seconds"), (0.3, "min-seconds")):
        for part in (("duration", str(seconds)), ("file", wav("x" * round(12.5 * seconds)))):
            error = error_of(ask(narrow, part), 400)
            assert error["x_asr"] == {"layer": "upload_limits"}
            assert error["message"].endswith(f"(set by --{option})")
    for count in (1_000_001, 4_000_000):
        assert error_of(ask(narrow, ("file", bytes(count))), 413)["x_asr"] == {"layer": "upload_limits"}


def test_it_is_described(server: Server, wav: Any) -> None:
    document = body_of(server.http.get("/openapi.json"))
    operation = document["paths"][PLAN]["post"]
    form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["model"]
    assert {"file", "duration", "chunking_strategy", "chunking_strategy[threshold]"} < form["properties"].keys()
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    for part in (("duration", "100"), ("file", wav("abc"))):
        answer = body_of(ask(server, part))
        Draft202012Validator({**schema, "components": document["components"]}).validate(answer)


def test_silence_is_skipped_and_said_to_be(server: Server, wav: Any) -> None:
    said, silence = "x" * 25, np.zeros(8 * tones.RATE, np.float32)
    answer = ask(server, ("file", wav(said, silence, said)))
    # Sound ends at 2.00 and begins again at 10.06; 0.3 s of silence is left beside either.
    assert clips(answer) == [(0, 2.3, "silence"), (2.3, 9.76, "silence"), (9.76, 12.06, "end")]
    assert [clip["decoded"] for clip in body_of(answer)["clips"]] == [True, False, True]
