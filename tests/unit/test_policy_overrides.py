"""What an operator may say of how audio is cut, and what is refused at start-up rather than found in transcripts."""

from __future__ import annotations

import math
from typing import Any

import pluggy
import pytest
from attrs import evolve

from asr_core import hookimpl, hookspecs
from asr_core.errors import PluginError, PolicyError
from asr_core.loading import served_policy
from asr_core.model_hooks import ModelHooks
from asr_core.types import Capabilities, Checkpoint, CheckpointModel, ChunkPolicy, ModelCard, NativeLimit

MODEL = CheckpointModel(ModelCard("some"), Checkpoint("some", "some", None))
OWN = ChunkPolicy(target_s=25.0, search_s=4.0)


class Plugin:
    """A plugin that says what it is told to."""

    def __init__(self, policy: ChunkPolicy, seconds: float | None, prompt: Any) -> None:
        self.policy, self.seconds, self.prompt = policy, seconds, prompt

    @hookimpl
    def capabilities(self) -> Capabilities:
        return Capabilities(prompt=self.prompt)

    @hookimpl
    def native_limit(self) -> NativeLimit:
        return NativeLimit(16_000, self.seconds, sources={"seconds": "1500 positions"})

    @hookimpl
    def chunk_policy(self) -> ChunkPolicy:
        return self.policy


def served(
    overrides: dict[str, Any], policy: ChunkPolicy = OWN, seconds: float | None = 30.0, prompt: Any = None
) -> ChunkPolicy:
    manager = pluggy.PluginManager("asr_core")
    manager.add_hookspecs(hookspecs)
    manager.register(Plugin(policy, seconds, prompt))
    hooks = {name: getattr(manager.hook, name) for name in ("capabilities", "native_limit", "chunk_policy")}
    return served_policy(ModelHooks("asr-some", hooks), MODEL, overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"target_s": 20},
        {"target_s": 30.0},
        {"target_s": None},
        {"search_s": 0},
        {"overlap_s": 2.0},
        {"min_tail_s": 0.5, "silence_floor": 0.0, "pad_s": 0, "least_rate": 0},
        {"skip_s": 60.0, "parallel": 1},
        {"carry_text": False},
    ],
)
def test_an_override_changes_its_field_and_no_other(overrides: dict[str, Any]) -> None:
    assert served(overrides) == evolve(OWN, **overrides)


def test_a_model_without_a_bound_takes_any_target() -> None:
    assert served({"target_s": 7200.0}, seconds=None).target_s == 7200.0


def test_text_is_carried_where_a_prompt_is_previous_text() -> None:
    assert served({"carry_text": True}, prompt="previous_text").carry_text
    assert not OWN.carry_text


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"target": 20.0}, r"no field .* 'target' \(did you mean target_s\?\); there are target_s, search_s, .*"),
        ({"target_s": "20"}, "target_s must be a finite number or none, not '20'"),
        ({"target_s": True}, "target_s must be a finite number or none, not True"),
        ({"target_s": math.inf}, "target_s must be a finite number or none, not inf"),
        ({"target_s": 10**400}, "int too large"),
        ({"target_s": 0.5}, "target_s must be at least 1 second, not 0.5"),
        ({"search_s": None}, "search_s must be a finite number, not None"),
        ({"search_s": math.nan}, "search_s must be a finite number, not nan"),
        ({"search_s": -1}, "search_s must not be negative, not -1"),
        ({"overlap_s": -0.5}, "overlap_s must not be negative, not -0.5"),
        ({"skip_s": 0}, "skip_s must be positive, not 0"),
        ({"parallel": 2.0}, "parallel must be a whole number, not 2.0"),
        ({"parallel": True}, "parallel must be a whole number, not True"),
        ({"parallel": 0}, "parallel must be at least 1, not 0"),
        ({"carry_text": 1}, "carry_text must be true or false, not 1"),
        ({"carry_text": True}, "carry_text needs a model to whom a prompt is previous text, which it is not to 'some'"),
        ({"target_s": 40}, r"target_s is 40 s, above the native limit of 30 s \(1500 positions\) of 'some'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(overrides: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError, match=says) as caught:
        served(overrides)
    assert (caught.value.param, caught.value.layer, caught.value.status) == (*overrides, "chunk_policy", 500)


def test_a_vocabulary_is_no_previous_text() -> None:
    with pytest.raises(PolicyError, match="previous text"):
        served({"carry_text": True}, prompt="vocabulary")


@pytest.mark.parametrize("overrides", [{}, {"target_s": 20.0}])
def test_a_plugin_above_its_own_limit_breaks_the_contract(overrides: dict[str, Any]) -> None:
    with pytest.raises(
        PluginError, match=r"asr-some: chunk_policy: target_s is 25 s, above .* 10 s \(1500 positions\)"
    ):
        served(overrides, seconds=10.0)
