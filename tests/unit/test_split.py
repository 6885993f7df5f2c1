"""Where long audio is cut, on sound whose pauses and quiet places are known since they were put there."""

from __future__ import annotations

import tracemalloc
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_core.errors import PluginError
from asr_core.longform import Part, Splitting, halves, split
from asr_core.types import ChunkPolicy, NativeLimit, Samples, ServerVad, Waveform
from asr_core.vad import EnergyDetector

RATE = 16_000
LOUD, SOFT = 0.1, 0.02  # 14 dB apart, which is no pause
MIB = 2**20


class Told:
    """A detector that was told its answer: speech, but for these spans of seconds, which score 0.4."""

    def __init__(self, *pauses: tuple[float, float], frame_s: float = 0.02) -> None:
        self.pauses, self.frame_s = pauses, frame_s

    def scores(self, samples: Samples, rate: int) -> npt.NDArray[np.float32]:
        scores = np.ones(int(np.ceil(len(samples) / rate / self.frame_s)), np.float32)
        for start, end in self.pauses:
            scores[round(start / self.frame_s) : round(end / self.frame_s)] = 0.4
        return scores


class Unasked:
    """A detector that is too dear to be asked without need."""

    frame_s = 0.02

    def scores(self, samples: Samples, rate: int) -> npt.NDArray[np.float32]:
        raise AssertionError("asked")


def sound(*levels: tuple[float, float], rate: int = RATE) -> Waveform:
    """Noise, as (seconds, amplitude) one after the other; every sample has the amplitude, one sign or the other."""
    rng = np.random.default_rng(7)
    parts = [rng.choice([-level, level], round(seconds * rate)) for seconds, level in levels]
    return waveform(np.concatenate(parts), rate)


def waveform(samples: npt.NDArray[Any], rate: int = RATE) -> Waveform:
    return Waveform(np.asarray(samples, np.float32), rate, b"")


def splitting(
    seconds: float | None = 30.0, detector: Any = None, trusted: bool = False, rate: int = RATE, **policy: Any
) -> Splitting:
    return Splitting(NativeLimit(rate, seconds), ChunkPolicy(**policy), detector or EnergyDetector(), trusted)


def told(parts: tuple[Part, ...], rate: int = RATE) -> list[tuple[float, float, bool, str]]:
    """Parts in seconds, to the millisecond."""
    return [
        (round(part.start_sample / rate, 3), round(part.end_sample / rate, 3), part.speech, part.reason)
        for part in parts
    ]


# Cuts


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100])
@pytest.mark.parametrize("detector", [EnergyDetector(), Told((28.5, 28.8), frame_s=0.032)])
def test_the_middle_of_a_pause_is_where_it_is_cut(detector: Any, rate: int) -> None:
    audio = sound((28.5, LOUD), (0.3, 0.0), (21.2, LOUD), rate=rate)
    first, last = split(audio, splitting(detector=detector, rate=rate))
    assert first.end_sample / rate == pytest.approx(28.65, abs=0.02)
    assert (first.speech, first.reason) == (True, "pause")
    assert last == Part(first.end_sample, len(audio.samples), True, "end")


def test_of_several_pauses_the_last_that_is_half_as_long_as_the_longest() -> None:
    audio = sound((50, LOUD))
    assert told(split(audio, splitting(detector=Told((28.2, 28.5), (28.7, 29.1), (29.5, 29.7)))))[0][1] == 29.6
    assert told(split(audio, splitting(detector=Told((28.2, 28.5), (28.7, 29.1), (29.5, 29.68)))))[0][1] == 28.9
    assert told(split(audio, splitting(detector=Told((28.2, 28.3), (28.4, 29.1), (29.5, 29.8)))))[0][1] == 28.75


def test_a_pause_that_goes_on_past_the_limit_is_cut_within_it() -> None:
    assert told(split(sound((50, LOUD)), splitting(detector=Told((29.0, 33.0)))))[0] == (0.0, 29.5, True, "pause")


@pytest.mark.parametrize(("start", "end", "before"), [(26.2, 26.6, 0), (26.3, 26.5, 2 * RATE)])
def test_what_is_timed_begins_in_a_rest(start: float, end: float, before: int) -> None:
    rules = splitting(detector=Told((start, end)), overlap_s=2.0, search_s=5.0)
    first, last = split(sound((50, LOUD)), rules, timed=True)
    assert split(sound((50, LOUD)), rules)[1].before == 2 * RATE
    assert (first.end_sample, first.reason) == (round(26.4 * RATE), "pause")
    assert (first.after, last.before) == (2 * RATE, before)


def test_less_than_200_ms_is_no_pause() -> None:
    audio = sound((29, LOUD), (0.1, SOFT), (20.9, LOUD))
    (first, _) = split(audio, splitting(detector=Told((28.2, 28.38))))
    assert (first.reason, first.end_sample / RATE) == ("quietest", pytest.approx(29.05, abs=0.01))


@pytest.mark.parametrize("level", [LOUD, 1e-30, 3e38])
@pytest.mark.parametrize("at", [28.0, 28.43, 29.9])
def test_without_a_pause_the_quietest_100_ms_are_cut(at: float, level: float) -> None:
    audio = sound((at, level), (0.1, level / 5), (49.9 - at, level))
    (first, _) = split(audio, splitting(silence_floor=0.0))
    assert first.reason == "quietest"
    assert first.end_sample / RATE == pytest.approx(at + 0.05, abs=0.01)


def test_where_there_is_no_room_to_choose_it_is_cut_at_the_limit() -> None:
    parts = split(sound((70, LOUD)), splitting(search_s=0.05))
    assert told(parts) == [(0, 30, True, "limit"), (30, 60, True, "limit"), (60, 70, True, "end")]


def test_policy_and_model_both_bound_a_clip_and_neither_need_be_there() -> None:
    audio = sound((50, LOUD))
    for seconds, target_s, longest in ((30.0, 10.0, 10), (10.0, 30.0, 10), (None, 10.0, 10), (10.0, None, 10)):
        parts = split(audio, splitting(seconds, target_s=target_s))
        assert longest - 2 <= max(part.end_sample - part.start_sample for part in parts) / RATE <= longest
    assert told(split(audio, splitting(None))) == [(0, 50, True, "end")]


def test_a_limit_between_two_samples_is_kept() -> None:
    assert split(sound((1, LOUD)), splitting(0.99999, search_s=0.0, min_tail_s=0.0))[0].end_sample == 15_999


@pytest.mark.parametrize("seconds", [30.001, 30.5, 30.9])
def test_a_short_tail_pulls_the_cut_before_it_earlier(seconds: float) -> None:
    first, tail = split(sound((seconds, LOUD)), splitting(search_s=0.5))
    assert first.reason == "tail"
    assert 1.0 <= (tail.end_sample - tail.start_sample) / RATE <= 1.5


def test_the_cut_before_a_short_tail_keeps_to_pauses() -> None:
    pauses = Told((28.6, 28.9), (29.5, 29.9))
    assert told(split(sound((30.3, LOUD)), splitting(detector=pauses)))[0] == (0, 28.75, True, "tail")


def test_a_tail_is_never_longer_than_a_clip() -> None:
    parts = split(sound((1.5, LOUD)), splitting(1.0, min_tail_s=5.0))
    assert told(parts) == [(0, 0.5, True, "tail"), (0.5, 1.5, True, "end")]


def test_audio_that_fits_stays_whole_and_nothing_is_computed_for_it() -> None:
    assert told(split(sound((14, LOUD), (2, 0), (14, LOUD)), splitting(detector=Unasked()))) == [(0, 30, True, "end")]
    assert len(split(sound((25, LOUD), (40, 0), (25, LOUD)), splitting(detector=Unasked()))) == 3


def test_no_audio_has_no_parts() -> None:
    assert split(waveform(np.zeros(0)), splitting()) == ()


# Silence


def test_silence_between_sounds_is_skipped_but_for_what_lies_beside_them() -> None:
    audio = sound((1, LOUD), (40, 0), (2, LOUD), (40, 0), (1, LOUD))
    assert told(split(audio, splitting())) == [
        (0, 1.3, True, "silence"),
        (1.3, 40.7, False, "silence"),
        (40.7, 43.3, True, "silence"),
        (43.3, 82.7, False, "silence"),
        (82.7, 84, True, "end"),
    ]


def test_silence_at_either_end_is_kept_only_beside_sound() -> None:
    audio = sound((6, 0), (1, LOUD), (6, 0))
    parts = [(0, 5.7, False, "silence"), (5.7, 7.3, True, "silence"), (7.3, 13, False, "end")]
    assert told(split(audio, splitting())) == parts


def test_silence_shorter_than_the_policy_says_is_decoded() -> None:
    assert len(split(sound((1, LOUD), (4.99, 0), (1, LOUD)), splitting())) == 1
    assert len(split(sound((1, LOUD), (5, 0), (1, LOUD)), splitting())) == 3


@pytest.mark.parametrize("seconds", [0.0001, 0.1, 3, 100])
@pytest.mark.parametrize("vad", [None, ServerVad()])
def test_what_stays_below_the_floor_is_skipped_whole(seconds: float, vad: ServerVad | None) -> None:
    below = sound((seconds, 0.000999))
    assert split(below, splitting(), vad) == (Part(0, len(below.samples), False, "end"),)


def test_one_sample_at_the_floor_is_a_sound() -> None:
    audio = sound((20, 0.000999))
    audio.samples[160_001] = -0.001
    assert [part.speech for part in split(audio, splitting())] == [False, True, False]
    kept = split(audio, splitting())[1]
    assert (kept.start_sample, kept.end_sample) == (160_002 + 4800 - RATE, 160_002 + 4800)


@pytest.mark.parametrize("vad", [None, ServerVad(prefix_padding_ms=0)])
def test_a_click_far_from_others_gets_silence_before_it_or_else_behind_it(vad: ServerVad | None) -> None:
    click = (0.0025, LOUD)
    audio = sound((4, LOUD), (6, 0), click, (6, 0), click)
    clips = [part for part in told(split(audio, splitting(pad_s=0.0), vad)) if part[2]]
    assert clips == [(0, 4, True, "silence"), (9.002, 10.002, True, "silence"), (15.005, 16.005, True, "end")]
    first = split(sound((0.4, 0), click, (6, 0)), splitting(pad_s=0.0, skip_s=0.3), vad)
    assert told(first) == [(0, 1, True, "silence"), (1, 6.402, False, "end")]


def test_only_a_detector_somebody_chose_decides_what_is_skipped() -> None:
    audio, detector = sound((30, LOUD)), Told((10, 20))
    assert told(split(audio, splitting(detector=detector))) == [(0, 30, True, "end")]
    chosen = split(audio, splitting(detector=detector, trusted=True))
    assert told(chosen) == [(0, 10.3, True, "silence"), (10.3, 19.7, False, "silence"), (19.7, 30, True, "end")]


def test_all_that_a_chosen_detector_takes_for_no_speech_may_be_everything() -> None:
    assert told(split(sound((10, LOUD)), splitting(detector=Told((0, 10)), trusted=True))) == [(0, 10, False, "end")]


@pytest.mark.parametrize("count", [0, 3, 52])
def test_a_detector_that_lost_count_is_told(count: int) -> None:
    class Miscounting(Told):
        def scores(self, samples: Samples, rate: int) -> npt.NDArray[np.float32]:
            return np.ones(count, np.float32)

    with pytest.raises(PluginError, match=f"the detector of speech gave {count} scores for 50 frames"):
        split(sound((1, LOUD)), splitting(detector=Miscounting(), trusted=True))


# What a caller asks for


def test_server_vad_cuts_at_every_pause_and_skips_what_is_not_padding() -> None:
    audio = sound((10, LOUD))
    pauses = Told((0, 1), (3, 4), (6, 6.4), (8, 8.18), (9.5, 10))
    assert told(split(audio, splitting(detector=pauses, pad_s=0.1), ServerVad(prefix_padding_ms=200))) == [
        (0, 0.8, False, "silence"),
        (0.8, 3.1, True, "silence"),
        (3.1, 3.8, False, "silence"),
        (3.8, 6.1, True, "silence"),
        (6.1, 6.2, False, "silence"),
        (6.2, 9.6, True, "silence"),
        (9.6, 10, False, "end"),
    ]


def test_a_pause_filled_by_its_padding_is_a_cut_and_nothing_is_skipped() -> None:
    parts = split(sound((6, LOUD)), splitting(detector=Told((3, 3.4)), pad_s=0.3), ServerVad(prefix_padding_ms=300))
    assert told(parts) == [(0, 3.2, True, "pause"), (3.2, 6, True, "end")]


@pytest.mark.parametrize(("threshold", "clips"), [(0.3, 1), (0.4, 1), (0.5, 2)])
def test_threshold_says_how_sure_of_speech_to_be(threshold: float, clips: int) -> None:
    vad = ServerVad(threshold=threshold, prefix_padding_ms=0)
    parts = split(sound((9, LOUD)), splitting(detector=Told((4, 5))), vad)
    assert sum(part.speech for part in parts) == clips


@pytest.mark.parametrize(("milliseconds", "clips"), [(0, 3), (200, 3), (320, 2), (1001, 1)])
def test_silence_duration_says_which_pause_ends_a_clip(milliseconds: int, clips: int) -> None:
    vad = ServerVad(silence_duration_ms=milliseconds)
    parts = split(sound((9, LOUD)), splitting(detector=Told((2, 2.08), (4, 5), (7, 7.3))), vad)
    assert sum(part.speech for part in parts) == clips


def test_words_with_pauses_around_them_stay_together() -> None:
    every = Told(*((second + 0.3, second + 0.6) for second in np.arange(0, 59.7, 0.6)))
    clips = [part for part in split(sound((60, LOUD)), splitting(detector=every), ServerVad()) if part.speech]
    assert 30 <= len(clips) <= 60
    assert min(clip.end_sample - clip.start_sample for clip in clips) >= RATE


def test_a_word_far_from_others_is_a_clip_and_one_beside_others_is_part_of_theirs() -> None:
    audio = sound((30, LOUD))
    alone = split(audio, splitting(detector=Told((0, 10), (10.4, 20))), ServerVad(prefix_padding_ms=0))
    assert [(start, end) for start, end, speech, _ in told(alone) if speech] == [(9.7, 10.7), (20, 30)]
    beside = split(audio, splitting(detector=Told((9, 11), (11.4, 20))), ServerVad(prefix_padding_ms=0))
    assert [(start, end) for start, end, speech, _ in told(beside) if speech] == [(0, 11.7), (20, 30)]


def test_server_vad_keeps_to_the_limit_of_the_model_at_the_callers_threshold() -> None:
    vad = ServerVad(threshold=0.3, silence_duration_ms=5000)
    (first, _) = split(sound((40, LOUD)), splitting(detector=Told((28.5, 29))), vad)
    assert first.reason == "quietest"
    (first, _) = split(sound((40, LOUD)), splitting(detector=Told((28.5, 29))), evolve(vad, threshold=0.5))
    assert (first.reason, first.end_sample / RATE) == ("pause", 28.75)


# In two


def test_a_clip_is_halved_where_its_middle_is_quietest() -> None:
    audio = sound((5, LOUD), (0.1, 0), (11.4, LOUD), (0.1, SOFT), (13.4, LOUD))
    left, right = halves(audio.clip(RATE, 29 * RATE))
    assert left.end_sample / RATE == pytest.approx(16.55, abs=0.01)
    assert (left.start_sample, right.end_sample) == (RATE, 29 * RATE)
    assert right.start_sample == left.end_sample


@pytest.mark.parametrize("samples", [2, 3, 160, 4799])
def test_a_clip_too_short_to_choose_is_cut_in_the_middle(samples: int) -> None:
    left, right = halves(sound((1, LOUD)).clip(100, 100 + samples))
    assert left.end_sample == right.start_sample == 100 + samples // 2


# Any sound, any policy

SLOW = 2000
"""Samples per second here: enough for frames of 20 ms to have some."""


def make(kind: str, count: int, level: float, seed: int) -> npt.NDArray[Any]:
    rng = np.random.default_rng(seed)
    return {
        "silence": lambda: np.zeros(count),
        "noise": lambda: rng.uniform(-level, level, count),
        "tone": lambda: level * np.sin(np.arange(count)),
        "clicks": lambda: level * (rng.random(count) < 0.002),
        "constant": lambda: np.full(count, -level),
    }[kind]()


LEVELS = st.sampled_from([1e-45, 1e-4, 9.99e-4, 1e-3, 0.02, 0.5, 1.0, 3.4e38])
STRETCHES = st.builds(
    make,
    st.sampled_from(["silence", "noise", "tone", "clicks", "constant"]),
    st.integers(1, 5 * SLOW),
    LEVELS,
    st.integers(0, 99),
)
WAVEFORMS = st.lists(STRETCHES, min_size=1, max_size=6).map(lambda parts: waveform(np.concatenate(parts), SLOW))
POLICIES = st.builds(
    ChunkPolicy,
    target_s=st.none() | st.floats(1, 8),
    search_s=st.sampled_from([0.0, 0.01, 0.5, 2.0, 100.0]),
    overlap_s=st.sampled_from([0.0, 0.0, 0.1, 0.49]),
    min_tail_s=st.sampled_from([0.0, 0.2, 1.0, 50.0]),
    silence_floor=st.sampled_from([0.0, 1e-3, 0.3]),
    skip_s=st.floats(0.1, 6),
    pad_s=st.sampled_from([0.0, 0.01, 0.3, 2.0]),
)
LIMITS = st.none() | st.floats(0.05, 8)
DETECTORS = st.just(EnergyDetector()) | st.builds(
    Told, st.tuples(st.floats(0, 9), st.floats(0, 9)), frame_s=st.just(0.032)
)
VADS = st.none() | st.builds(ServerVad, st.floats(0, 1), st.integers(0, 2000), st.integers(0, 2000))


def silent_runs(samples: Samples, floor: float) -> list[tuple[int, int]]:
    """A second, slower way to find them."""
    runs, at = [], 0
    for silent, run in groupby((np.abs(samples) < floor).tolist()):
        length = len(list(run))
        runs += [(at, at + length)] if silent else []
        at += length
    return runs


@pytest.mark.parametrize(("rate", "parts", "seconds"), [(16_000, 3, 21), (16_000, 9, 9), (48_000, 9, 7)])
def test_a_frame_too_many_by_a_rounding_error_is_none(rate: int, parts: int, seconds: int) -> None:
    pause = Told((seconds - 3, seconds - 2), frame_s=1 / parts)
    first, last = split(sound((seconds, LOUD), rate=rate), splitting(seconds - 1, detector=pause, rate=rate))
    assert first.end_sample / rate == pytest.approx(seconds - 2.5, abs=0.01)
    assert last == Part(first.end_sample, seconds * rate, True, "end")


@settings(max_examples=400, deadline=None)
@given(WAVEFORMS, POLICIES, LIMITS, DETECTORS, st.booleans(), VADS, st.booleans())
def test_every_sample_is_in_one_part_and_no_clip_is_too_long(
    audio: Waveform,
    policy: ChunkPolicy,
    limit: float | None,
    detector: Any,
    trusted: bool,
    vad: ServerVad | None,
    timed: bool,
) -> None:
    rules = Splitting(NativeLimit(SLOW, limit), policy, detector, trusted)
    parts = split(audio, rules, vad, timed=timed)
    edges = [0, *(part.end_sample for part in parts)]
    assert [part.start_sample for part in parts] == edges[:-1]
    assert edges[-1] == len(audio.samples)
    assert all(a < b for a, b in pairwise(edges))
    cap = min(limit or np.inf, policy.target_s or np.inf) * SLOW
    assert all(len(part.heard(audio).samples) <= cap for part in parts if part.speech)
    assert all(other.before in ((0, one.after) if timed else (one.after,)) for one, other in pairwise(parts))
    assert all(part.after <= round(policy.overlap_s * SLOW) for part in parts)
    assert all(part.before + part.after <= part.end_sample - part.start_sample for part in parts)
    assert (parts[0].before, parts[-1].after) == (0, 0)
    assert split(audio, rules, vad, timed=timed) == parts


def between(spans: list[tuple[int, int]], count: int) -> list[int]:
    """How long what is left of ``count`` samples is, before, between and behind these."""
    edges = [0, *(edge for span in spans for edge in span), count]
    return [b - a for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


@settings(max_examples=400, deadline=None)
@given(WAVEFORMS, POLICIES, LIMITS, DETECTORS)
def test_what_is_silent_for_long_is_skipped_but_for_what_makes_a_clip_long_enough(
    audio: Waveform, policy: ChunkPolicy, limit: float | None, detector: Any
) -> None:
    count, pad = len(audio.samples), round(policy.pad_s * SLOW)
    runs = silent_runs(audio.samples, policy.silence_floor)
    long = [(a, b) for a, b in runs if b - a >= policy.skip_s * SLOW or (a, b) == (0, count)]
    padded = [(a + pad * (a > 0), b - pad * (b < count)) for a, b in long]
    parts = split(audio, Splitting(NativeLimit(SLOW, limit), policy, detector))
    skipped = [(part.start_sample, part.end_sample) for part in parts if not part.speech]
    whole, shortest = [(a, b) for a, b in padded if a < b], round(policy.min_tail_s * SLOW)
    assert all(any(a <= start and end <= b for a, b in whole) for start, end in skipped)
    assert not skipped or all(length >= shortest for length in between(skipped, count))
    if all(length >= shortest for length in between(whole, count)):
        assert skipped == whole


@settings(max_examples=400, deadline=None)
@given(WAVEFORMS, POLICIES, st.floats(0.05, 8), DETECTORS, st.booleans())
def test_clips_of_what_was_cut_are_neither_many_nor_short(
    audio: Waveform, policy: ChunkPolicy, limit: float, detector: Any, trusted: bool
) -> None:
    cap = int(min(limit, policy.target_s or np.inf) * SLOW)
    least = cap - 2 * min(round(policy.overlap_s * SLOW), cap // 4)
    parts = split(audio, Splitting(NativeLimit(SLOW, limit), policy, detector, trusted))
    for speech, group in groupby(parts, key=lambda part: part.speech):
        lengths = [part.end_sample - part.start_sample for part in group]
        if speech and len(lengths) > 1:
            assert min(lengths[:-2], default=cap) >= least // 2
            assert lengths[-1] >= min(least, round(policy.min_tail_s * SLOW))


@pytest.mark.parametrize("vad", [None, ServerVad()])
@pytest.mark.parametrize("floor", [0.0, 1e-3])
@pytest.mark.parametrize("detector", [EnergyDetector(), Told()])
def test_four_hours_take_no_memory_to_speak_of(detector: Any, floor: float, vad: ServerVad | None) -> None:
    audio = waveform(np.zeros(4 * 3600 * RATE, np.float32))
    for minute in range(0, 240, 5):
        start = minute * 60 * RATE
        audio.samples[start : start + RATE] = sound((1, LOUD)).samples
    tracemalloc.start()
    try:
        parts = split(audio, splitting(detector=detector, silence_floor=floor), vad)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
    assert len(parts) >= 2 * 48
    assert parts[-1].end_sample == len(audio.samples)
