"""The in-tree plugin that registers the embedded engine, through the same hook as everybody's."""

from __future__ import annotations

from collections.abc import Callable

from asr_core.engines.compute import Compute
from asr_core.engines.protocol import Engine, EngineCard
from asr_core.hookspecs import hookimpl
from asr_core.types import LoadedModel


def create_torch_engine(model: LoadedModel, compute: Compute) -> Engine:
    """Import torch only when a model is opened."""
    from asr_core.engines.torch import AsrEngineBuilder

    return AsrEngineBuilder(model, compute).build()


TORCH = EngineCard(
    name="torch",
    summary="embedded in this process, CPU or CUDA",
    features=frozenset({"embeddings", "cross_attention", "probes", "rules", "custom_rules", "attention", "beams"}),
    parts=frozenset({"encoder", "decoder"}),
    create=create_torch_engine,
)


@hookimpl
def register_engines(register: Callable[[EngineCard], None]) -> None:
    """The default engine."""
    register(TORCH)
