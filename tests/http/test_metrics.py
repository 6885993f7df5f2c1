"""/metrics counts what happened, once, under labels no caller can invent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from asr_core.testing.raw_http import begin, body_of

ROUTE = "/v1/audio/transcriptions"
Counted = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def counted(start: Callable[..., Any]) -> Any:
    """A server nobody else asks."""
    return start("--model", "fake", "--model", "able")


def read(server: Any) -> Counted:
    answer = server.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def at(counted: Counted, name: str, **labels: str) -> float:
    return counted.get((name, tuple(sorted(labels.items()))), 0.0)


def grown(before: Counted, after: Counted, name: str, **labels: str) -> float:
    return at(after, name, **labels) - at(before, name, **labels)


def test_an_answer(counted: Any, wav: Any) -> None:
    before = read(counted)
    for _ in range(3):
        assert counted.post(("model", "fake-tones"), ("file", wav("a" * 12))).json()["text"] == "a" * 12
    after = read(counted)
    assert grown(before, after, "asr_requests_total", route=ROUTE, status="200", model="fake") == 3
    assert grown(before, after, "asr_request_seconds_count", route=ROUTE, model="fake") == 3
    assert grown(before, after, "asr_audio_seconds_total", model="fake") == pytest.approx(3 * 0.99)
    assert grown(before, after, "asr_real_time_factor_count", model="fake") == 3
    assert grown(before, after, "asr_first_event_seconds_count", model="fake") == 0
    assert grown(before, after, "asr_guards_total", model="fake", kind="budget") == 0
    assert grown(before, after, "asr_coverage_seconds_total", model="fake", state="decoded") == pytest.approx(3 * 0.99)
    assert grown(before, after, "asr_coverage_seconds_total", model="fake", state="lost") == 0
    assert grown(before, after, "asr_engine_finished_total", model="fake") == 3
    # A token for each letter, and the one that ends it.
    assert grown(before, after, "asr_engine_tokens_total", model="fake") == 3 * 13
    assert grown(before, after, "asr_engine_rows_total", model="fake") == 3 * 13
    assert grown(before, after, "asr_engine_steps_total", model="fake") == 3 * 13
    assert grown(before, after, "asr_encoder_misses_total", model="fake") == 3
    assert grown(before, after, "asr_engine_finished_total", model="able") == 0
    assert at(after, "asr_engine_running", model="fake") == at(after, "asr_engine_queued", model="fake") == 0
    assert at(after, "asr_requests_running") == 1
    assert at(after, "asr_audio_seconds_held") == at(after, "asr_upload_bytes_held") == 0


def test_a_stream(counted: Any, wav: Any) -> None:
    before = read(counted)
    assert "done" in counted.post(("model", "fake"), ("stream", "true"), ("file", wav("abc"))).text
    after = read(counted)
    assert grown(before, after, "asr_first_event_seconds_count", model="fake") == 1
    assert grown(before, after, "asr_first_event_seconds_sum", model="fake") > 0
    assert grown(before, after, "asr_requests_total", route=ROUTE, status="200", model="fake") == 1


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_guard(counted: Any, wav: Any, stream: str) -> None:
    before = read(counted)
    counted.post(("model", "fake"), ("behaviour", "loop"), ("stream", stream), ("file", wav("abc")))
    assert grown(before, read(counted), "asr_guards_total", model="fake", kind="budget") == 1


def test_refusals_and_faults(counted: Any, wav: Any) -> None:
    before = read(counted)
    counted.post(("model", "fake"), ("temperature", "hot"), ("file", wav("x")))
    counted.post(("model", "fake"), ("behaviour", "raise"), ("file", wav("abcdef")))
    counted.post(("model", "made up by the caller"), ("file", wav("x")))
    counted.http.get("/made/up/by/the/caller")
    counted.http.get("/v1/models/made-up-by-the-caller")
    counted.http.put(ROUTE)
    after = read(counted)
    assert grown(before, after, "asr_requests_total", route=ROUTE, status="400", model="") == 1
    assert grown(before, after, "asr_requests_total", route=ROUTE, status="500", model="fake") == 1
    assert grown(before, after, "asr_requests_total", route=ROUTE, status="404", model="") == 1
    assert grown(before, after, "asr_requests_total", route="none", status="404", model="") == 1
    assert grown(before, after, "asr_requests_total", route="/v1/models/{id:path}", status="404", model="") == 1
    assert grown(before, after, "asr_requests_total", route=ROUTE, status="405", model="") == 1
    assert grown(before, after, "asr_engine_failed_total", model="fake") == 1
    assert grown(before, after, "asr_real_time_factor_count", model="fake") == 0


def test_a_client_that_left(counted: Any, wav: Any) -> None:
    before = read(counted)
    connection = begin(counted, body := body_of(wav("x" * 300), model="fake", behaviour="slow"))
    connection.sendall(body)
    counted.wait_for_engine("fake", running=1)
    connection.close()
    counted.wait_for(" 499 ")
    counted.wait_for_engine("fake", running=0)
    after = read(counted)
    assert grown(before, after, "asr_requests_total", route=ROUTE, status="499", model="fake") == 1
    assert grown(before, after, "asr_engine_aborted_total", model="fake") == 1


def test_nothing_a_caller_sent_is_in_it(counted: Any, wav: Any) -> None:
    parts = ("prompt", "sesame"), ("keywords[]", "sesame"), ("file", wav("sesame"))
    counted.http.post(ROUTE, files={"file": ("sesame.wav", wav("sesame"))}, data={"model": "fake"})
    assert counted.post(("model", "able"), *parts).json()["text"] == "sesame"
    counted.post(("model", "sesame"), ("sesame", "sesame"), ("file", wav("x")))
    counted.http.get("/sesame", headers={"x-request-id": "sesame", "user-agent": "sesame"})
    text = counted.http.get("/metrics").text
    assert "sesame" not in text
    assert "made up" not in text
    labels = set(re.findall(r'model="([^"]*)"', text))
    assert labels == {"", "fake", "able"}
    assert set(re.findall(r'route="([^"]*)"', text)) <= {
        "none",
        "/health",
        "/metrics",
        ROUTE,
        "/v1/models/{id:path}",
    }
