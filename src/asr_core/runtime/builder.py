"""How an engine comes into being: the same steps for every workload, and nothing left behind when one fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar, Generic, TypeVar

from attrs import frozen

from asr_core.engines.protocol import Engine

Arguments = TypeVar("Arguments")
Decoder = TypeVar("Decoder")
Result = TypeVar("Result")


@frozen
class Placement:
    """Where the decoder computes (``cpu``, ``cuda:0``) and in which dtype (``float32``, ...)."""

    device: str
    dtype: str


class GenerationEngineBuilder(ABC, Generic[Arguments, Decoder]):
    """Assembles an engine around anything that generates token by token.

    A workload says where its arguments and its decoder come from; everybody goes through STEPS. What a step acquires it
    registers with ``resources``, to be released in reverse order: when a later step fails, or when the engine closes.
    """

    STEPS: ClassVar = ("arguments", "placement", "decoder", "memory", "warm_up", "scheduler")

    def build(self) -> Engine:
        """Take every step in order; the error of one that fails carries its name as a note."""
        with ExitStack() as undo:
            resources = undo.enter_context(ExitStack())
            arguments = self._take("arguments", lambda: self.arguments(resources))
            placement = self._take("placement", lambda: self.placement(arguments, resources))
            decoder = self._take("decoder", lambda: self.decoder(arguments, placement, resources))
            bounded = self._take("memory", lambda: self.memory(arguments, decoder, resources))
            self._take("warm_up", lambda: self.warm_up(decoder, placement, resources))
            engine = self._take("scheduler", lambda: self.scheduler(bounded, decoder, resources.close))
            undo.pop_all()  # from here on the resources are the engine's to release
            return engine

    @abstractmethod
    def arguments(self, resources: ExitStack) -> Arguments:
        """What was asked for, checked before anything is acquired."""

    @abstractmethod
    def placement(self, arguments: Arguments, resources: ExitStack) -> Placement:
        """Device and dtype of what computes."""

    @abstractmethod
    def decoder(self, arguments: Arguments, placement: Placement, resources: ExitStack) -> Decoder:
        """What the engine drives."""

    @abstractmethod
    def memory(self, arguments: Arguments, decoder: Decoder, resources: ExitStack) -> Arguments:
        """Bound the memory for keys and values; the arguments, within what it can hold."""

    def warm_up(self, decoder: Decoder, placement: Placement, resources: ExitStack) -> None:
        """Compile, record or touch what would make the first request slow; nothing by default."""

    @abstractmethod
    def scheduler(self, arguments: Arguments, decoder: Decoder, release: Callable[[], None]) -> Engine:
        """The engine itself, which calls ``release`` when it is closed."""

    @staticmethod
    def _take(name: str, step: Callable[[], Result]) -> Result:
        try:
            return step()
        except BaseException as error:
            error.add_note(f"while building an engine, at step {name}")
            raise
