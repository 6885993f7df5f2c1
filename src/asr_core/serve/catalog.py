"""The models this server answers for, by every name a caller may use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from attrs import asdict

from asr_core.errors import ModelNotFoundError, OverloadedError
from asr_core.loading import ServedModel

SHOWN_NAME = 100
"""Characters of an unknown name that are repeated to whoever sent it."""


class Catalog:
    """Served models by id; aliases and what the operator typed find them as well."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = dict(models)
        self._created = int(time.time())
        self._names = {alias: id_ for id_, served in models.items() for alias in served.card.aliases}
        self._names |= {id_: id_ for id_ in models}
        # What the operator typed may be a path, which is found and never shown.
        self._ids = {served.model.checkpoint.reference: id_ for id_, served in models.items()} | self._names

    def find(self, name: str) -> ServedModel:
        """The model that ``name`` means.

        Raises:
            ModelNotFoundError: none is served under it; the message has near names.
        """
        return self._models[self._id(name)]

    def describe(self, name: str) -> dict[str, Any]:
        """OpenAI's model object, what the core knows beyond it under ``x_asr``."""
        id_ = self._id(name)
        served = self._models[id_]
        return {
            "id": id_,
            "object": "model",
            "created": self._created,
            "owned_by": served.hooks.owner,
            "x_asr": _facts(served),
        }

    def describe_all(self) -> list[dict[str, Any]]:
        """One object per model, in the order they were given."""
        return [self.describe(id_) for id_ in self._models]

    def statistics(self) -> dict[str, Any]:
        """The counters of each model's engine and encoder since start, for operators."""
        return {id_: _counters(served) for id_, served in self._models.items()}

    def check_health(self) -> None:
        """Whether every model can be served.

        Raises:
            OverloadedError: an engine or encoder reports that it cannot go on; the message says which and why.
        """
        for id_, served in self._models.items():
            for layer, part in (("engine", served.engine), ("encoder", served.encoder)):
                if part is not None and (problem := part.health()) is not None:
                    raise OverloadedError(f"model {id_!r}: {problem}", layer=layer)

    def _id(self, name: str) -> str:
        if name in self._ids:
            return self._ids[name]
        near = get_close_matches(name[:SHOWN_NAME], self._names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"served: {', '.join(self._models)}"
        raise ModelNotFoundError(f"The model {name[:SHOWN_NAME]!r} is not served here; {hint}", layer="server")


def _counters(served: ServedModel) -> dict[str, Any]:
    engine = asdict(served.engine.statistics()) if served.engine else None
    return {"engine": engine, "encoder": asdict(served.encoder.statistics())}


def _facts(served: ServedModel) -> dict[str, Any]:
    return {
        "capabilities": asdict(served.capabilities, filter=_is_told, value_serializer=_as_json),
        "native_limit": asdict(served.native_limit),
        "chunk_policy": asdict(served.chunk_policy),
        "engine": served.engine_name,
        "vad": served.detector_name,
        "device": served.model.device,
        "dtype": served.model.dtype,
    }


def _is_told(attribute: Any, value: Any) -> bool:
    # What the engine could not carry has been withdrawn already.
    return bool(attribute.name != "requires")


def _as_json(instance: Any, attribute: Any, value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value
