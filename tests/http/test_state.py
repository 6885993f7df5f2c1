"""No audio, however odd, changes the answer another request gets: A, odd, A, one after the other and all at once."""

from __future__ import annotations

import io
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import soundfile

from asr_core.testing import tones

TEXT = "the same words every time"


def file(samples: np.ndarray, subtype: str = "FLOAT", **options: Any) -> bytes:
    written = io.BytesIO()
    soundfile.write(written, samples, tones.RATE, **{"format": "WAV", "subtype": subtype} | options)
    return written.getvalue()


def _odd() -> dict[str, tuple[bytes, int]]:
    """Uploads, and the status each of them gets."""
    speech = tones.speak("something else").astype(np.float32)
    with_nan, with_infinity = speech.copy(), speech.copy()
    with_nan[len(speech) // 2], with_infinity[-1] = np.nan, np.inf
    noise = np.random.default_rng(0).normal(0, 0.3, tones.RATE).astype(np.float32)
    whole, flac = file(speech, "PCM_16"), file(speech, "PCM_16", format="FLAC")
    return {
        "NaN": (file(with_nan), 400),
        "infinity": (file(with_infinity), 400),
        "all NaN": (file(np.full(tones.RATE, np.nan, np.float32)), 400),
        "clipping": (file(np.clip(100 * speech, -1, 1), "PCM_16"), 200),
        "constant": (file(np.full(tones.RATE, 0.9, np.float32)), 200),
        "speech on a constant": (file(speech + 0.5), 200),
        "huge": (file(speech * 1e30), 200),
        "as large as floats are": (file(np.full(tones.RATE, np.finfo(np.float32).max)), 200),
        "tiny": (file(speech * 1e-30), 200),
        "smaller than normal": (file(np.full(tones.RATE, 1e-45, np.float32)), 200),
        "silence": (file(np.zeros(tones.RATE, np.float32)), 200),
        "noise": (file(noise), 200),
        "too short": (file(speech[:100]), 400),
        "no samples": (file(speech[:0]), 400),
        "no bytes": (b"", 400),
        "cut off": (whole[: len(whole) // 2], 200),
        "cut off in its header": (whole[:30], 400),
        "damaged": (flac[: len(flac) * 3 // 4] + bytes(500), 200),
        "no audio": (bytes(range(256)) * 20, 400),
        "text": (b"ffconcat version 1.0\nfile /etc/passwd\n", 400),
        "longer than a clip": (file(np.tile(speech, 61 * tones.RATE // len(speech) + 1), "PCM_U8"), 200),
    }


ODD = _odd()


def ask(server: Any, upload: bytes, *parts: tuple[str, str]) -> tuple[int, Any]:
    answer = server.post(("model", "fake"), *parts, ("file", upload))
    return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def plain(server: Any, wav: Any) -> tuple[int, Any]:
    """What A is answered before anything odd was heard."""
    status, body = ask(server, wav(TEXT))
    assert (status, body["text"]) == (200, TEXT)
    return status, body


@pytest.mark.parametrize("odd", ODD)
def test_one_after_the_other(server: Any, wav: Any, plain: tuple[int, Any], odd: str) -> None:
    upload, status = ODD[odd]
    assert ask(server, upload)[0] == status
    assert ask(server, wav(TEXT)) == plain


@pytest.mark.parametrize("behaviour", ["loop", "early_end", "raise", "speakers"])
def test_after_a_model_that_misbehaves(server: Any, wav: Any, plain: tuple[int, Any], behaviour: str) -> None:
    ask(server, wav(TEXT), ("behaviour", behaviour))
    assert ask(server, wav(TEXT)) == plain


def test_all_at_once(server: Any, wav: Any, plain: tuple[int, Any]) -> None:
    uploads = [*ODD.values(), *[(wav(TEXT), 200)] * len(ODD)] * 2
    random.Random(0).shuffle(uploads)
    with ThreadPoolExecutor(12) as callers:
        answers = list(callers.map(lambda upload: ask(server, upload[0]), uploads))
    for (upload, status), answer in zip(uploads, answers, strict=True):
        assert answer[0] == status
        if upload == wav(TEXT):
            assert answer == plain
