"""Where long audio is cut: at pauses, never beyond a limit, every sample in exactly one part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import frozen

from asr_core.longform._cuts import Cutter, Reason, quietest
from asr_core.longform._frames import Frames
from asr_core.longform._gaps import SPEECH, Gap, pauses, silences
from asr_core.services import VoiceDetector
from asr_core.types import ChunkPolicy, Clip, NativeLimit, ServerVad, Waveform


@frozen
class Part:
    """A stretch of the audio, in samples: a clip to decode or, without ``speech``, something to skip.

    ``reason`` says why it ends there: the audio does (``end``), a stretch to skip begins or ends (``silence``), there
    is a pause (``pause``), nothing nearby is quieter (``quietest``), nothing could be chosen (``limit``), or the last
    clip would have been too short (``tail``). ``before`` and ``after`` are how many samples of its neighbours are heard
    with it.
    """

    start_sample: int
    end_sample: int
    speech: bool
    reason: Reason
    before: int = 0
    after: int = 0

    def heard(self, waveform: Waveform) -> Clip:
        """It and these."""
        return waveform.clip(self.start_sample - self.before, self.end_sample + self.after)


@frozen(eq=False)
class Splitting:
    """What decides where audio is cut.

    ``detector`` tells pauses; where it is ``trusted`` (someone chose it), what it takes for no speech is skipped as
    silence is.
    """

    native: NativeLimit
    policy: ChunkPolicy
    detector: VoiceDetector
    trusted: bool = False


def split(
    waveform: Waveform, splitting: Splitting, server_vad: ServerVad | None = None, *, timed: bool = False
) -> tuple[Part, ...]:
    """Cut ``waveform`` into parts that hold every sample exactly once, in order.

    What is silent for the policy's ``skip_s`` is skipped but for ``pad_s`` beside sound, and more where a clip would be
    shorter than ``min_tail_s``; audio in which nothing sounds is skipped whole. What remains and is longer than policy
    or model take is cut in the last ``search_s`` (at most half a clip) before that: in the middle of the last pause
    that is at least half as long as the longest, else of the quietest 100 ms. Beside such a cut the policy's
    ``overlap_s`` are heard with both; where segments are ``timed``, a clip that begins in a rest hears nothing before
    it, so that they begin where sentences do. With ``server_vad`` every pause it describes is skipped, unless what is
    said between two of them is shorter than ``min_tail_s``.

    Raises:
        PluginError: the detector broke its contract.
    """
    count = len(waveform.samples)
    if not count:
        return ()
    frames, policy = Frames(waveform, splitting.detector), splitting.policy
    if not (frames.peaks >= policy.silence_floor).any():
        return (Part(0, count, False, "end"),)
    gaps = pauses(frames, policy, server_vad) if server_vad else silences(frames, policy, splitting.trusted)
    return tuple(_parts(gaps, _cutter(frames, splitting, server_vad, timed), count))


def _cutter(frames: Frames, splitting: Splitting, server_vad: ServerVad | None, timed: bool) -> Cutter:
    policy, rate = splitting.policy, frames.waveform.rate
    limits = [seconds for seconds in (splitting.native.seconds, policy.target_s) if seconds is not None]
    cap = max(1, int(min(limits) * rate)) if limits else len(frames.waveform.samples)
    # Who is given the text of the clip before would go on behind it.
    overlap = 0 if policy.carry_text else min(round(policy.overlap_s * rate), cap // 4)
    tail = min(cap - 2 * overlap, round(policy.min_tail_s * rate))
    threshold = SPEECH if server_vad is None else server_vad.threshold
    return Cutter(frames, cap, overlap, round(policy.search_s * rate), tail, threshold, timed)


def _parts(gaps: Sequence[Gap], cutter: Cutter, count: int) -> Iterator[Part]:
    start = 0
    for gap in (*gaps, Gap(count, count)):
        yield from _clips(start, gap.start, cutter, _reason(gap, count))
        if gap.length:
            yield Part(gap.start, gap.end, False, "end" if gap.end == count else "silence")
        start = gap.end


def _clips(start: int, end: int, cutter: Cutter, reason: Reason) -> Iterator[Part]:
    """Of a stretch, which ends for ``reason``; nothing is heard of any but the clips beside it."""
    ends = [*cutter.ends(start, end), (end, reason)]
    starts = [start, *(cut for cut, _ in ends[:-1])]
    lengths = [to - at for at, (to, _) in zip(starts, ends, strict=True)]
    # Half of a clip at most, so that its neighbours do not meet.
    most = [min(one // 2, other // 2) for one, other in pairwise(lengths)]
    befores = [0, *(min(room, cutter.before(cut)) for room, (cut, _) in zip(most, ends, strict=False))]
    afters = [*(min(room, cutter.overlap) for room in most), 0]
    for at, (to, why), before, after in zip(starts, ends, befores, afters, strict=True):
        if at < to:
            yield Part(at, to, True, why, before, after)


def _reason(gap: Gap, count: int) -> Reason:
    """Why a clip ends where ``gap`` begins."""
    if gap.length:
        return "silence"
    return "end" if gap.start == count else "pause"


def halves(clip: Clip) -> tuple[Clip, Clip]:
    """``clip``, of at least two samples, in two: cut at the quietest 100 ms of its middle third, if it has them."""
    length = clip.end_sample - clip.start_sample
    third = length // 3
    quiet = quietest(clip.samples[third : length - third], clip.rate)
    cut = clip.start_sample + (length // 2 if quiet is None else third + quiet)
    return clip.waveform.clip(clip.start_sample, cut), clip.waveform.clip(cut, clip.end_sample)
