"""Schemathesis asks what the description allows, and what it does not, and judges every answer by it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from asr_core.testing.http_contract import TRANSLATIONS, body_of
from asr_core.testing.server import PATIENCE_S, TRANSCRIPTIONS, Server

CASES = int(os.environ.get("ASR_CORE_FUZZ_CASES", "80"))
"""For each speech route; ``nox -s fuzz`` asks for more, and for others each time."""

TYPED = (503, 504)
"""What a server may say that is busy or late."""

load_all_checks()
asking = settings(
    max_examples=CASES,
    derandomize="ASR_CORE_FUZZ_CASES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@schemathesis.deserializer("text/vtt", "text/event-stream")
def as_text(context: Any, response: Any) -> str:
    return response.content.decode()


@pytest.fixture(scope="module")
def api(server: Server) -> Any:
    """The description, and where to ask.

    Loaded from its own address, schemathesis would leave out the route that shows it.
    """
    schema = schemathesis.openapi.from_dict(body_of(server.http.get("/openapi.json")))
    schema.config.update(base_url=server.url)
    return schema


@pytest.fixture(scope="module")
def statuses() -> Iterator[Counter[tuple[str, int]]]:
    """How often each route gave each answer."""
    counts: Counter[tuple[str, int]] = Counter()
    yield counts
    print(f"\nby the description: {sum(counts.values())} cases, {dict(sorted(counts.items()))}")


def check(case: Any, statuses: Counter[tuple[str, int]], *excluded: Any) -> None:
    """Ask, and judge: a good form may still be refused, as no schema says what a model can do."""
    answer = case.call(timeout=PATIENCE_S)
    statuses[case.operation.path, answer.status_code] += 1
    case.validate_response(answer, excluded_checks=[positive_data_acceptance, *excluded])
    assert answer.status_code < 500 or answer.status_code in TYPED


def test_all_routes_are_known(api: Any) -> None:
    assert [found.ok().path for found in api.get_all_operations()] == list(api.raw_schema["paths"])
    assert len(api.raw_schema["paths"]) == 9


@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
def test_good_forms_with_sound(api: Any, wav: Any, statuses: Counter[tuple[str, int]], path: str) -> None:
    """Fields are left out, as nearly every language or option there could be is none of the model's."""

    @asking
    @given(api[path]["POST"].as_strategy(), st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        kept = data.draw(st.sets(st.sampled_from(sorted(case.body))))
        case.body = {name: value for name, value in case.body.items() if name in kept | {"model"}}
        case.body |= {"file": wav("ab cd")}
        # Sound is no text, so schemathesis takes the form for a bad one.
        check(case, statuses, negative_data_rejection)

    ask()
    assert statuses[path, 200] > CASES / 10


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
def test_forms(api: Any, statuses: Counter[tuple[str, int]], path: str, mode: GenerationMode) -> None:
    @asking
    @given(api[path]["POST"].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        check(case, statuses)

    ask()


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/{id}", "/health", "/ready", "/metrics", "/openapi.json"])
def test_what_only_tells(api: Any, statuses: Counter[tuple[str, int]], path: str) -> None:
    @asking
    @given(api[path]["GET"].as_strategy())
    def ask(case: Any) -> None:
        check(case, statuses)

    ask()
