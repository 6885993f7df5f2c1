"""The clips of one request: several at once, told in order."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

from attrs import define, evolve, field

from asr_core.clip import ClipTranscript, ClipTranscription
from asr_core.errors import AsrError, BusyError, OverloadedError, PluginError
from asr_core.loading import ServedModel
from asr_core.longform import Part, halves
from asr_core.overlap import Cut, join
from asr_core.runtime.fold import shift
from asr_core.runtime.stream import Deltas, TextDelta
from asr_core.types import Clip, Segment, TranscriptionRequest, Waveform

MAX_RETAKEN = 64
"""Times one clip may be heard again in parts: a plugin that asks for more makes no headway."""

ROOM_S = 0.1
"""Until a request that is under way asks full queues again."""

Event = TextDelta | Segment
"""What can be told while work goes on: text, and each segment once it is complete."""


@define(eq=False)
class Clips:
    """Transcribes ``parts`` of ``waveform``, in order and in their places; ``send`` hears of text and segments so.

    The first clip that is not done is told while it is decoded, what later ones say waits for it; one that overlaps
    with others when these are done. So if somebody is ``listening``, the first two come before all others then.
    ``progress`` is told of each part that is done. ``results`` are one list per part, in its own order of time.
    """

    served: ServedModel
    waveform: Waveform
    parts: Sequence[Part]
    request: TranscriptionRequest
    send: Callable[[Event], None]
    progress: Callable[[Part], None]
    listening: bool
    results: list[list[ClipTranscript]] = field(init=False)
    # Every request is a caller of its own, so the clips of a long one never starve short ones.
    _caller: str = field(init=False, factory=lambda: uuid4().hex)
    _deltas: Deltas = field(init=False)
    _order: _Order = field(init=False, factory=lambda: _Order())
    _said: str = field(init=False, default="")
    _waiting: deque[int] = field(init=False)
    _running: int = field(init=False, default=0)
    _done: set[int] = field(init=False, factory=set)
    _told: set[int] = field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self._deltas = Deltas(self.send)
        self.results = [[] for _ in self.parts]
        self._waiting = deque(range(len(self.parts)))

    async def run(self) -> None:
        """Fill ``results``.

        Raises:
            AsrError: a clip failed; the message says which, and the others are given up.
        """
        newcomers = self.served.compute.newcomers
        newcomers.add(self)
        try:
            async with asyncio.TaskGroup() as group:
                self._spawn(group)
        except BaseExceptionGroup as failures:
            # One is enough for the request, and callers know none of groups.
            failure = failures.exceptions[0]
            raise failure from failure.__cause__
        finally:
            newcomers.discard(self)

    def _spawn(self, group: asyncio.TaskGroup) -> None:
        while self._waiting and self._running < self._lanes:
            self._running += 1
            group.create_task(self._run(self._waiting.popleft(), group))

    @property
    def _lanes(self) -> int:
        """As many clips at once as the policy wants, one while others are about their first."""
        policy, newcomers = self.served.chunk_policy, self.served.compute.newcomers
        if policy.carry_text or newcomers.since(besides={id(self.waveform)}) is not None:
            return 1
        # Few are done as soon together: of three, the first two come at the same time, and the last one a third later.
        if self.listening and self._order.turn == 0 and self.parts[0].after and len(self.parts) > policy.parallel / 2:
            return min(2 - len(self._done), policy.parallel)
        return policy.at_once(len(self.parts))

    async def _run(self, number: int, group: asyncio.TaskGroup) -> None:
        try:
            await self._transcribe(number)
        except BusyError as error:
            if number == 0 or number in self._told or self.results[number]:
                raise self._located(error, number) from error.__cause__
            await self._wait_for_room(number, group)
            return
        except AsrError as error:
            raise self._located(error, number) from error.__cause__
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not this clip but what it waited for was cancelled, which the group would take for a clip that is done.
            raise OverloadedError("what computes was closed") from error
        self._finish(number)
        self.progress(self.parts[number])
        self._running -= 1
        if number == 0:
            self.served.compute.newcomers.discard(self)
        self._spawn(group)

    async def _wait_for_room(self, number: int, group: asyncio.TaskGroup) -> None:
        """Put a clip off that found the queues full: refusing the request now would throw away what is done of it."""
        self._waiting = deque(sorted([number, *self._waiting]))
        if self._running == 1:
            await asyncio.sleep(ROOM_S)
        self._running -= 1
        if not self._running:
            self._spawn(group)

    def _finish(self, number: int) -> None:
        """Of a clip that is done; each is told from where it joins the one before to where it joins the next."""
        self._done.add(number)
        while (turn := self._order.turn) in self._done and (not self.parts[turn].after or turn + 1 in self._done):
            if self.parts[turn].after:
                self._join(turn)
            if self._overlaps(turn):
                self._tell(self.results[turn])
            self._order.end()

    def _join(self, number: int) -> None:
        left, right = self.parts[number : number + 2]
        cut = Cut.between(left, right, self.waveform, self.served.chunk_policy.silence_floor)
        joined = join(self.results[number], self.results[number + 1], cut)
        self.results[number], self.results[number + 1] = joined

    def _tell(self, results: Sequence[ClipTranscript]) -> None:
        for result in results:
            self._deltas.extend(result.text)
            self._deltas.end_clip()
            for segment in result.segments:
                self.send(segment)

    async def _transcribe(self, number: int) -> None:
        done, language, part = self.results[number], self.request.language, self.parts[number]
        waiting = deque([(part.heard(self.waveform), False)])
        while waiting:
            clip, retaken = waiting.popleft()
            result = await self._hear(clip, number, language, retaken=retaken)
            done.append(result)
            language = language or result.language
            again = _again(clip, result, retaken=retaken)
            # What is behind its end, the next one hears as well.
            waiting.extendleft((rest, why) for rest, why in reversed(again) if rest.start_sample < part.end_sample)
            if waiting and len(done) > MAX_RETAKEN:
                raise PluginError(f"{self.served.hooks.owner}: a clip was heard again {MAX_RETAKEN} times")

    async def _hear(self, clip: Clip, number: int, language: str | None, *, retaken: bool) -> ClipTranscript:
        first, told = number == 0 and not self.results[0], 0

        def send(text: str) -> None:
            self._act(number, partial(self._deltas.extend, text))

        def tell(segments: Sequence[Segment]) -> None:
            nonlocal told
            told += len(segments)
            for segment in segments:
                self._act(number, partial(self.send, _placed(segment, clip, first=first)))

        previous = self._said if self.served.chunk_policy.carry_text else ""
        result = await ClipTranscription(
            self.served, clip, self.request, language, self._caller, send, tell, previous, retaken
        ).run()
        self._act(number, self._deltas.end_clip)
        tell(result.segments[told:])
        self._said = result.text or self._said
        return evolve(result, segments=tuple(_placed(segment, clip, first=first) for segment in result.segments))

    def _overlaps(self, number: int) -> bool:
        """Whether it, or the clip before it, hears part of the other."""
        return any(part.after for part in self.parts[max(0, number - 1) : number + 1])

    def _act(self, number: int, act: Callable[[], None]) -> None:
        """Tell of a clip that is not to be joined with others first."""
        if not self._overlaps(number):
            self._told.add(number)
            self._order.act(number, act)

    def _located(self, error: AsrError, number: int) -> AsrError:
        if len(self.parts) == 1:
            return error
        # A copy, as one error may have failed the clips of several requests.
        located, part = copy.copy(error), self.parts[number]
        start, end = part.start_sample / self.waveform.rate, part.end_sample / self.waveform.rate
        located.message = f"clip {number + 1} of {len(self.parts)}, {start:.2f} s to {end:.2f} s: {error.message}"
        located.args = (located.message,)
        return located


@define(eq=False)
class _Order:
    """Acts of many, each in its turn: those of the one whose turn it is happen at once, the others' wait."""

    turn: int = 0
    waiting: dict[int, list[Callable[[], None]]] = field(factory=dict)

    def act(self, number: int, act: Callable[[], None]) -> None:
        if number == self.turn:
            act()
        else:
            self.waiting.setdefault(number, []).append(act)

    def end(self) -> None:
        self.turn += 1
        for act in self.waiting.pop(self.turn, ()):
            act()


def _again(clip: Clip, result: ClipTranscript, *, retaken: bool) -> list[tuple[Clip, bool]]:
    """What is to be heard once more of ``clip``, and whether that is because a text ended before the speech."""
    if result.consumed_to is not None:
        rest = clip.waveform.clip(clip.start_sample + result.consumed_to, clip.end_sample)
        return [(rest, retaken or result.ended_early)]
    return [(half, True) for half in halves(clip)] if result.ended_early else []


def _placed(segment: Segment, clip: Clip, *, first: bool) -> Segment:
    """``segment`` on the clock of the whole audio.

    Labels of speakers mean nothing beyond their clip, so those of all but the first clip say which it is.
    """
    placed = shift(segment, clip.milliseconds(0), clip.milliseconds(len(clip.samples)))
    if first or segment.speaker is None:
        return placed
    return evolve(placed, speaker=f"{segment.speaker}@{clip.milliseconds(0) / 1000:.10g}")
