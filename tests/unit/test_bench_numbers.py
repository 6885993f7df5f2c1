"""What a benchmark makes of answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from asr_core.bench.baseline import Baseline
from asr_core.bench.drive import Outcome, Reply, Request, RequestFailed, Round, drive, prepare
from asr_core.bench.figures import Figures, Spread, failures, figures, medians
from asr_core.bench.manifest import Line
from asr_core.bench.measure import Level, Plan
from asr_core.bench.memory import family, peak, peak_above, resident
from asr_core.bench.normaliser import letters, plain
from asr_core.bench.report import HEADER, Report
from asr_core.bench.score import Rate, Scorer, unit_of
from asr_core.bench.sounds import RATE, Sound
from asr_core.errors import BenchError


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer()


def sound(reference: str, language: str | None = "en", seconds: float = 1.0) -> Sound:
    return Sound(Line(Path("x"), language, reference), np.zeros(round(seconds * RATE), np.int16))


def test_percentiles_between_two_values_are_interpolated() -> None:
    """As Excel's PERCENTILE.INC and numpy's default have it: rank 1 + p (n - 1)."""
    spread = Spread.of([4.0, 1.0, 3.0, 2.0])
    assert spread == Spread(mean=2.5, p50=2.5, p95=pytest.approx(3.85), p99=pytest.approx(3.97))
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 7.0)
    assert Spread.of([]) is None


@pytest.mark.parametrize(
    ("language", "reference", "text", "errors", "units"),
    [
        ("en", "red, green and blue", "Red. Green -- and blue!", 0, 4),
        ("en", "the cat sat on the mat", "the cat sit on mat", 2, 6),
        ("en", "don't pay", "Don’t pay!", 0, 2),  # noqa: RUF001
        ("en", "", "who was it", 3, 0),
        ("en", "all of it", "", 3, 3),
        ("de", "zwei Wörter", "Zwei Wörter mehr", 1, 2),
        (None, "plain words", "plain word", 1, 2),
        ("zh", "今天天气很好", "今天天汽好。", 2, 6),
        ("ja-JP", "東京です", "東京です", 0, 4),
        ("ko", "안녕 하세요", "안녕하세요", 0, 5),
    ],
)
def test_errors_against_counts_by_hand(
    scorer: Scorer, language: str | None, reference: str, text: str, errors: int, units: int
) -> None:
    assert scorer.rate(reference, text, language) == Rate(errors, units)


def test_units() -> None:
    assert [unit_of(language) for language in ("en", None, "zh", "ZH-tw", "th", "de-CH")] == [
        "word", "word", "letter", "letter", "letter", "word",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  Mr. Smith's — ill-disposed\n", "mr smiths ill disposed"),
        ("Straße, ÉCOLE; ｆｕｌｌ", "strasse école full"),  # noqa: RUF001
        ("ฉันไม่รู้", "ฉันไม่รู้"),
        ("今天,天气。", "今天 天气"),
        ("…", ""),
    ],
)
def test_plain_words(text: str, words: str) -> None:
    assert plain(text) == words


def test_marks_stay_with_their_letter() -> None:
    assert letters("ไม่ รู้") == "ไ ม่ รู้"
    assert letters("今天 天") == "今 天 天"


def test_a_normaliser_of_another_package() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its word list open
        scorer = Scorer("whisper.normalizers:EnglishTextNormalizer")
    assert scorer.rate("mister smith does not pay twenty one", "Mr. Smith doesn't pay 21.", "en") == Rate(0, 6)
    assert Scorer("textwrap:dedent").rate("A b", "a b", None) == Rate(1, 2)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere:It", "No module named 'nowhere'"),
        ("textwrap:it", "has no attribute 'it'"),
        ("textwrap", "cannot be used"),
        ("textwrap:TextWrapper", "cannot be used"),
        ("builtins:len", "makes no text of a text"),
        ("math:pi", "cannot be used"),
        ("", "cannot be used"),
    ],
)
def test_a_normaliser_that_is_none(name: str, says: str) -> None:
    with pytest.raises(BenchError, match=says) as caught:
        Scorer(name)
    assert caught.value.param == "normaliser"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(BenchError, match=r"jiwer is not installed: pip install 'asr-core\[bench\]'"):
        Scorer()


def test_a_failed_request_is_an_error_and_no_throughput(scorer: Scorer) -> None:
    outcomes = (
        Outcome(sound("red blue", seconds=4.0), 0.5, "red blue", first=0.25),
        Outcome(sound("red blue", seconds=2.0), 1.5, "red blew"),
        Outcome(sound("一二三四", "zh", seconds=2.0), 1.0, "一二三"),
        Outcome(sound("red blue", seconds=100.0), 9.0, failure=("HTTP 429", "later")),
    )
    found = figures(Round(2, 2.0, 0.4, outcomes), scorer)
    assert found == Figures(
        requests=4,
        failed=1,
        throughput=1.5,
        rtfx=4.0,
        cpu=0.1,
        latency=Spread.of([0.5, 1.5, 1.0]),
        first=Spread(0.25, 0.25, 0.25, 0.25),
        word_errors=25.0,
        letter_errors=25.0,
    )


def test_all_failed_is_no_division_by_nothing(scorer: Scorer) -> None:
    round_ = Round(1, 2.0, 0.0, (Outcome(sound("one"), 2.0, failure=("ReadError", "gone")),))
    found = figures(round_, scorer)
    assert (found.throughput, found.failed, found.latency, found.word_errors) == (0.0, 1, None, None)
    assert medians([found, found]).failed == 2
    assert Report({}, None, [Level(1, found, (found,), *failures([round_]))]).rows


def test_medians_add_up_what_failed() -> None:
    rounds = [
        Figures(5, failed, speed, 2 * speed, 0.1, Spread(speed, speed, speed, speed), None, errors, None)
        for failed, speed, errors in ((0, 1.0, None), (1, 5.0, 2.0), (0, 2.0, 4.0))
    ]
    assert medians(rounds) == Figures(15, 1, 2.0, 4.0, 0.1, Spread(2.0, 2.0, 2.0, 2.0), None, 3.0, None)


def test_every_request_is_made_once_and_so_many_at_a_time() -> None:
    lock, now, most, made = threading.Lock(), 0, 0, list[bytes]()

    def ask(request: Request) -> Reply:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
            made.append(request.wav)
        time.sleep(0.01)
        with lock:
            now -= 1
        if len(made) % 10 == 0:
            raise ValueError("every tenth or so")
        return Reply("text", time.monotonic())

    requests = prepare([sound("a", seconds=0.01)], 40, 0)
    done = drive(ask, requests, 4)
    assert Counter(made) == Counter(request.wav for request in requests)
    assert most <= 4
    assert len(done.outcomes) == 40
    failed = [outcome for outcome in done.outcomes if outcome.text is None]
    assert failed
    assert {outcome.failure for outcome in failed} == {("ValueError", "every tenth or so")}
    for outcome in done.outcomes:
        assert outcome.text is None or (outcome.first is not None and outcome.first <= outcome.seconds)


def test_failures_are_counted_by_kind_with_the_first_message() -> None:
    def ask(request: Request) -> Reply:
        raise RequestFailed("HTTP 503", request.sound.line.reference)

    done = drive(ask, prepare([sound("first"), sound("second")], 3, 0), 1)
    assert failures([done]) == (Counter({"HTTP 503": 3}), {"HTTP 503": "first"})


@pytest.mark.parametrize(
    ("callers", "sounds", "requests", "count"),
    [(1, 5, None, 5), (4, 5, None, 20), (16, 5, None, 65), (1, 1, None, 4), (16, 300, None, 300), (16, 5, 30, 30)],
)
def test_a_round_is_whole_passes_unless_told(callers: int, sounds: int, requests: int | None, count: int) -> None:
    assert Plan((callers,), 3, 0, requests).count(callers, sounds) == count


def level(callers: int, throughput: float, words: float | None = 3.0, letters: float | None = None) -> Level:
    found = Figures(5, 0, throughput, 1.0, 0.0, None, None, words, letters)
    return Level(callers, found, (found,), Counter(), {})


def written(directory: Path, *levels: Level) -> Path:
    file = directory / "baseline.json"
    file.write_text(json.dumps(Report({"model": "m", "normaliser": "plain"}, 1.0, levels).as_dict()))
    return file


@pytest.mark.parametrize(
    ("now", "ratio", "increase", "says"),
    [
        (level(4, 3.0), 1.5, 0.3, []),
        (level(4, 2.9), 1.5, None, ["throughput at 4 is 1.45 times the baseline's, must be 1.5"]),
        (level(4, 0.1), None, 0.3, []),
        (level(4, 3.0, 3.3), 1.5, 0.3, []),
        (level(4, 3.0, 3.5), 1.5, 0.3, ["word errors at 4 are 3.50 %, 0.50 points above the baseline's, may be 0.3"]),
        (level(4, 3.0, None), 1.5, 0.3, ["word errors at 4 cannot be compared: only one side has any"]),
        (level(4, 3.0, 3.0, 9.0), None, 0.0, ["letter errors at 4 cannot be compared: only one side has any"]),
    ],
)
def test_what_is_asked_beside_a_baseline(
    tmp_path: Path, now: Level, ratio: float | None, increase: float | None, says: list[str]
) -> None:
    baseline = Baseline.read(written(tmp_path, level(1, 1.0), level(4, 2.0)), (4,), "plain")
    assert list(baseline.broken([now], ratio, increase)) == says


@pytest.mark.parametrize(
    ("text", "param", "says"),
    [
        ("{", "baseline", "is no report of a benchmark"),
        ("[]", "baseline", "is no report of a benchmark"),
        ('{"levels": [{"callers": 4}]}', "baseline", "is no report of a benchmark"),
        ('{"levels": [], "normaliser": "plain"}', "concurrency", "was not measured at a concurrency of 4, 16"),
    ],
)
def test_a_baseline_that_is_none(tmp_path: Path, text: str, param: str, says: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(text)
    with pytest.raises(BenchError, match=says) as caught:
        Baseline.read(file, (16, 4), "plain")
    assert caught.value.param == param


def test_a_baseline_that_counts_otherwise(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="was scored with the normaliser plain") as caught:
        Baseline.read(written(tmp_path, level(4, 2.0)), (4,), "a:b")
    assert caught.value.param == "normaliser"


def test_a_report_has_a_cell_for_every_column() -> None:
    report = Report({"model": "m", "machine": {"cpu": "c", "instructions": ["a", "b"]}}, None, [level(4, 2.0)])
    (cells,) = report.rows
    assert dict(zip(HEADER, cells, strict=True))["REQUESTS/S"] == "2.00"
    assert list(report.lines()) == ["peak memory: not measured", "model: m", "machine: cpu c, instructions a b"]


def test_memory_of_a_process_and_of_what_it_started() -> None:
    command = [sys.executable, "-c", "import sys; held = bytearray(64 << 20); print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdin
        child.stdout.readline()
        assert {os.getpid(), child.pid} <= set(family(os.getpid()))
        assert 64 < peak(child.pid) < 200
        assert peak_above(32.0, child.pid) == pytest.approx(peak(child.pid) - 32.0)
        child.stdin.close()
    assert 0 < resident() <= peak()
    with pytest.raises(BenchError, match="there is no process"):
        peak_above(0.0, child.pid)
