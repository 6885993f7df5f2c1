"""Text is committed, then sent: a delta is never taken back, and the deltas of a request add up to its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from asr_core.longform import join_texts
from asr_core.model_hooks import ModelHooks
from asr_core.runtime.fold import Before, Folded, fold, until, without
from asr_core.runtime.loops import loop_start
from asr_core.runtime.text import DecodeTokens, TokenText
from asr_core.types import (
    CheckpointModel,
    ClipOutput,
    End,
    Finish,
    Piece,
    Segment,
    Speaker,
    SpokenToken,
    StreamingPolicy,
    Tokens,
)


@frozen
class CommitRule:
    """When text is committed while its clip is still being generated; ``reviewed`` if a review comes before."""

    policy: StreamingPolicy
    reviewed: bool

    @classmethod
    def of(cls, hooks: ModelHooks, model: CheckpointModel) -> CommitRule:
        """What the plugin says; one that reviews and says nothing means whole clips."""
        reviewed = hooks.has("review_output")
        if reviewed and not hooks.has("streaming_policy"):
            return cls(StreamingPolicy(commit="clip"), reviewed)
        return cls(hooks.streaming_policy(model), reviewed)

    def is_due(self, text: ClipText) -> bool:
        """Whether what ``text`` holds is to be committed now."""
        if self.policy.commit == "segment":
            return text.ends_segment
        if self.policy.commit == "token":
            return not self.reviewed or text.fills(self.policy.review_tokens)
        return False


@frozen
class TextDelta:
    """Text that follows what was sent before; never empty."""

    text: str


@define(eq=False)
class ClipText:
    """The output of one clip over all its attempts: a retry begins after what is committed.

    ``send`` gets committed text as it is, white space at both ends of the clip included; ``tell`` the segments that are
    known to end with it, as they will stand in the whole.
    """

    decode: DecodeTokens
    duration_ms: int
    send: Callable[[str], None]
    tell: Callable[[tuple[Segment, ...]], None] = lambda segments: None
    _given: Tokens = field(init=False, default=())
    _tokens: list[int] = field(init=False, factory=list)
    _logprobs: list[float] = field(init=False, factory=list)
    _text: TokenText = field(init=False)
    _before: Before = field(init=False, default=Before())
    _committed_length: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._text = TokenText(self.decode)

    @property
    def committed(self) -> Tokens:
        """The tokens that any further attempt has to begin with."""
        return self._text.committed

    @property
    def ends_segment(self) -> bool:
        """Whether a segment with text has just ended."""
        return self._text.ends_segment and bool(self._pending_text().strip())

    def fills(self, run: int) -> bool:
        """Whether a whole number of runs of ``run`` generated tokens waits, none of them held back."""
        return not self._text.holding and bool(self._tokens) and len(self._tokens) % run == 0

    def begin(self, given: Tokens) -> None:
        """Start an attempt from ``given``: after a commit the committed tokens, whose text is here already."""
        self._text.rewind()
        self._given = given
        self._tokens.clear()
        self._logprobs.clear()
        if not self.committed:
            for token in given:
                self._text.push(token)

    def take(self, token: int, logprob: float, *, spoken: bool = True, time: int | None = None) -> None:
        """The next output token; one that is not ``spoken`` ends the output and has no text."""
        self._tokens.append(token)
        self._logprobs.append(logprob)
        if spoken:
            self._text.push(token, logprob, time)

    def output(self, finish: Finish | None = None) -> ClipOutput:
        """What is not committed, for review."""
        folded = self._pending()
        tokens, logprobs, given = tuple(self._tokens), tuple(self._logprobs), self.committed or self._given
        return ClipOutput(tokens, logprobs, given, folded.text, folded.segments, folded.languages, finish)

    def close(self, finish: Finish) -> ClipOutput:
        """End the attempt, and what it has added since the last commit."""
        self._text.close()
        return self.output(finish)

    def commit(self, *, by_segment: bool = False) -> None:
        """Send what was added since the last commit; ``by_segment`` if that is whole segments."""
        text, ended = self._pending_text(), self._pending().segments if by_segment else ()
        self._before = self._next(ended)
        self._committed_length += len(text)
        self._text.commit()
        self._tokens.clear()
        self._logprobs.clear()
        if text:
            self.send(text)
        if ended:
            self.tell(ended)

    def drop(self) -> None:
        """Forget what is not committed."""
        self._text.rewind()

    def drop_segments(self, is_unwanted: Callable[[Segment], bool]) -> tuple[Segment, ...]:
        """Forget the text of segments that are unwanted, have times of their own and are not committed."""
        unwanted = tuple(filter(is_unwanted, self._pending().timed))
        self._text.pending = without(self._text.pending, self.duration_ms, self._before, unwanted)
        return unwanted

    def loop_start(self) -> int | None:
        """Where the repeats begin in which the text ends, in characters behind what is committed; None for no loop."""
        start = loop_start("".join(_text_of(fragment.piece) for fragment in self._text.fragments))
        return None if start is None else start - self._committed_length

    def cut(self, start: int) -> bool:
        """Forget what is not committed from character ``start`` on, and nothing follows; whether that was anything."""
        length = len(self._pending_text())
        self._text.pending = until(self._text.pending, max(0, start))
        return len(self._pending_text()) < length

    def folded(self) -> Folded:
        """All that is there, committed or not."""
        return fold(self._text.fragments, self.duration_ms)

    def whole(self, finish: Finish) -> ClipOutput:
        """All that is there as one output, the given tokens among the others."""
        folded, fragments = self.folded(), self._text.fragments
        tokens = tuple(token for fragment in fragments for token in fragment.tokens)
        logprobs = tuple(logprob for fragment in fragments for logprob in fragment.logprobs)
        return ClipOutput(tokens, logprobs, (), folded.text, folded.segments, folded.languages, finish)

    def spoken(self) -> tuple[SpokenToken, ...]:
        """The generated tokens that have text."""
        return tuple(
            SpokenToken(text, fragment.tokens, fragment.logprobs)
            for fragment in self._text.fragments
            if fragment.logprobs and (text := _text_of(fragment.piece))
        )

    def _pending(self) -> Folded:
        return fold(self._text.pending, self.duration_ms, self._before)

    def _next(self, ended: Sequence[Segment]) -> Before:
        """What will be before the coming fragments: ``ended`` segments if it is known that they have, else by marks."""
        marks = [item for fragment in self._text.pending for item in fragment.piece]
        speaker = next((mark.label for mark in reversed(marks) if isinstance(mark, Speaker)), self._before.speaker)
        if ended:
            return Before(ended[-1].start_ms, ended[-1].end_ms, speaker)
        end_ms = max([self._before.end_ms, *(mark.ms for mark in marks if isinstance(mark, End))])
        return Before(end_ms, end_ms, speaker)

    def _pending_text(self) -> str:
        return "".join(_text_of(fragment.piece) for fragment in self._text.pending)


def _text_of(piece: Piece) -> str:
    return "".join(item for item in piece if isinstance(item, str))


@define(eq=False)
class Deltas:
    """Sends what the clips of one request commit as deltas, which add up to what ``join_texts`` makes of the clips."""

    send: Callable[[TextDelta], None]
    _last: str = field(init=False, default="")
    """The last character sent: the seam to the next clip is decided by it."""

    _space: str = field(init=False, default="")
    """White space that belongs to the text only if more of its clip follows."""

    _begun: bool = field(init=False, default=False)
    """Whether the clip has shown a character."""

    def extend(self, text: str) -> None:
        """The clip goes on with ``text``; what of it may yet turn out to be its end waits."""
        text = self._space + text if self._begun else text
        visible = text.rstrip()
        self._space = text[len(visible) :]
        if visible:
            delta = visible if self._begun else join_texts((self._last, visible))[len(self._last) :]
            self._begun, self._last = True, visible[-1]
            self.send(TextDelta(delta))

    def end_clip(self) -> None:
        """The next text is another clip's."""
        self._begun = False
