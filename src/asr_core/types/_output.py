"""What comes back: pieces of text and marks, one clip's output, the transcript."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from asr_core.types._clip import Probe, Tokens

Finish = Literal["stop", "length", "loop"]
"""Why an output ended: a stop token, its budget, or the core, as it repeated itself."""


@frozen
class Start:
    """A segment begins, ``ms`` after the clip's start."""

    ms: int


@frozen
class End:
    """A segment ends, ``ms`` after the clip's start."""

    ms: int


@frozen
class Speaker:
    """From here on this speaker talks."""

    label: str


@frozen
class Language:
    """From here on this language is spoken (lower-case ISO 639 code)."""

    code: str


Mark = Start | End | Speaker | Language
Piece = tuple[str | Mark, ...]


@frozen
class Recognized:
    """One span's result from a model that does not generate: tokens, their log-probabilities and times.

    ``times`` are milliseconds after the span's start, one per token, or empty if the model has none.

    Raises:
        ValueError: not as many log-probabilities, or times, as tokens.
    """

    tokens: Tokens
    logprobs: tuple[float, ...]
    times: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        if len(self.logprobs) != len(self.tokens) or len(self.times) not in (0, len(self.tokens)):
            counts = f"{len(self.tokens)} tokens, {len(self.logprobs)} log-probabilities, {len(self.times)} times"
            raise ValueError(f"these do not go together: {counts}")


@frozen
class Segment:
    """A stretch of text with its time in milliseconds.

    ``tokens`` are the output tokens it came from, ``logprobs`` those of them that were generated rather than given,
    drawn at ``temperature``. ``clip_ms`` is where its clip starts. ``no_speech_prob`` is the model's, or the share of
    the segment in which nothing sounds.
    """

    start_ms: int
    end_ms: int
    text: str
    speaker: str | None = None
    tokens: Tokens = ()
    logprobs: tuple[float, ...] = ()
    temperature: float = 0.0
    clip_ms: int = 0
    no_speech_prob: float = 0.0

    @property
    def mean_logprob(self) -> float:
        """Natural log-probability per generated token; 0.0 when none was generated."""
        return _mean(self.logprobs)


@frozen
class Word:
    """A word with its time in milliseconds."""

    start_ms: int
    end_ms: int
    text: str


@frozen
class SpokenToken:
    """One generated token, or several that only together make text, each with its log-probability."""

    text: str
    ids: Tokens
    logprobs: tuple[float, ...]

    @property
    def logprob(self) -> float:
        """That of the whole text."""
        return sum(self.logprobs)


@frozen(eq=False)
class ClipOutput:
    """What one attempt at a clip has put out and nobody has committed yet, as review sees it.

    ``tokens`` are what was generated, the stop token included; ``given`` came before them. ``text`` and ``segments``,
    whose times count from the clip's start, hold the given tokens too, except those that are committed. ``finish`` is
    ``length`` when the budget ran out, ``loop`` when the core ended it as it repeated itself, and None while
    generation goes on, at the end of a segment.
    """

    tokens: Tokens
    logprobs: tuple[float, ...]
    given: Tokens
    text: str
    segments: tuple[Segment, ...]
    languages: tuple[str, ...]
    finish: Finish | None

    @property
    def mean_logprob(self) -> float:
        """Natural log-probability per generated token, stop token included; 0.0 when nothing was generated."""
        return _mean(self.logprobs)


def _mean(logprobs: tuple[float, ...]) -> float:
    return sum(logprobs) / len(logprobs) if logprobs else 0.0


@frozen
class Accept:
    """The output stands.

    ``consumed_to`` (samples after the clip's start) says where the model stopped listening: the rest becomes a clip of
    its own, so no text of this output may start behind it. Only for the whole output, not while generation goes on.
    ``no_speech_prob`` is how sure the model is that nobody speaks, if it tells.
    """

    consumed_to: int | None = None
    no_speech_prob: float | None = None


@frozen
class Retry:
    """The output is not good enough: ``prepare_clip`` is asked again with this reason.

    What is committed stays: its tokens are the ``hypothesis`` of the next context, and the core has the next attempt
    begin with them, in place of ``PreparedClip.given`` and at the expense of its budget.
    """

    reason: str


@frozen
class NoSpeech:
    """Nobody speaks in this clip: its text is dropped and the stretch counts as silence.

    While generation goes on it only puts the commit off; behind a commit it drops the rest of the text.
    """


@frozen
class Ask:
    """More must be known: ``probes`` are answered, and ``review_output`` is called again with them in its context.

    For what few outputs depend on: a probe of ``PreparedClip`` delays every clip.
    """

    probes: tuple[Probe, ...]


Verdict = Accept | Retry | NoSpeech | Ask


StretchState = Literal["decoded", "redecoded", "silent", "lost"]


@frozen
class Stretch:
    """Part of the audio, in samples, and what became of it.

    ``redecoded`` is what was decoded once more as a clip of its own, because the text had ended before the speech.
    ``lost`` is what the audio decoder could not read (no sample stands for it), and speech that has no text.
    """

    start_sample: int
    end_sample: int
    state: StretchState
    note: str = ""


GuardKind = Literal["retry", "budget", "early_end", "loop", "no_speech", "times"]


@frozen
class Guard:
    """A safeguard that stepped in, between these milliseconds of the audio.

    ``retry``: decoded again. ``budget``: cut at the budget of tokens. ``early_end``: the text ended before the speech.
    ``loop``: text that repeated itself was cut, or generation stopped. ``no_speech``: text where nobody speaks was
    dropped. ``times``: times outside the clip were moved into it. ``note`` says it in words, without the text.
    """

    kind: GuardKind
    start_ms: int
    end_ms: int
    note: str


@frozen
class Usage:
    """What one request had the model do, attempts that were thrown away included and probes left out.

    ``audio_tokens`` are encoder rows, ``text_tokens`` those of prompts with what was given, ``output_tokens`` the
    generated or recognised ones.
    """

    audio_tokens: int = 0
    text_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.audio_tokens + other.audio_tokens,
            self.text_tokens + other.text_tokens,
            self.output_tokens + other.output_tokens,
        )


@frozen
class Transcript:
    """The answer to one request; times count from the start of the audio.

    ``language`` is the requested code or that of most of the speech, None if the model does not tell; ``languages`` are
    all there are, in order. ``tokens`` are the generated ones that have text. ``coverage`` accounts for every sample of
    the audio in order, followed by what the decoder lost; ``guards`` tells what was done to the text. Where
    ``stable_speakers`` is False, equal voices may have different labels, as the model heard the audio in parts.
    """

    text: str
    language: str | None
    duration: float
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()
    tokens: tuple[SpokenToken, ...] = ()
    coverage: tuple[Stretch, ...] = ()
    guards: tuple[Guard, ...] = ()
    usage: Usage = Usage()
    languages: tuple[str, ...] = ()
    stable_speakers: bool = True
