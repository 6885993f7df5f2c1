"""What every model plugin must keep, as tests that its own test suite subclasses.

from asr_core.testing.conformance import ModelConformance

class TestMyModel(ModelConformance):
    model = "my-model"            # a name, or a directory with a small random checkpoint

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls): ...         # float32 mono at the model's rate, a few seconds
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import wave
from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any, ClassVar
from urllib.request import Request, urlopen

import numpy as np
import pytest
from attrs import evolve

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.errors import InvalidRequestError
from asr_core.loading import ServedModel
from asr_core.longform import join_texts
from asr_core.types import (
    AudioSlice,
    Capabilities,
    CheckpointModel,
    Clip,
    ClipContext,
    Feature,
    PreparedClip,
    Samples,
    Transcript,
    TranscriptionRequest,
)

ATOL = 1e-3
"""Encoder rows of a clip alone and in company may differ by the order of float32 sums."""

_HEAVY = "torch", "transformers", "librosa"
_DISCOVER = f"""
import sys
from asr_core.plugins import Plugins
Plugins.discover(strict=True).models()
print([name for name in {_HEAVY!r} if name in sys.modules])
"""


class ModelConformance:
    """Subclass it, set :attr:`model` and override the fixture ``speech``; float32 on the CPU throughout."""

    model: ClassVar[str]

    readme: ClassVar[Path | None] = None
    """Whose ``bash`` blocks' ``asr-core transcribe`` commands are run, with the model's checkpoint."""

    @pytest.fixture(scope="class")
    @classmethod
    def speech(cls) -> Samples:
        """Sound the model makes words of: float32 mono of shape [n] at its own rate."""
        raise NotImplementedError("override the fixture `speech`")

    @pytest.fixture(scope="class")
    @classmethod
    def transcriber(cls) -> Iterator[Transcriber]:
        """The model, opened as a user would."""
        with load(cls.model, device="cpu", dtype="float32") as transcriber:
            yield transcriber

    @pytest.fixture(scope="class")
    @classmethod
    def special(cls, transcriber: Transcriber) -> Mapping[str, int]:
        """Every token that the model's tokenizer adds to its vocabulary, by text: none may come from a caller."""
        return {}

    @pytest.fixture
    def served(self, transcriber: Transcriber) -> ServedModel:
        """Its hooks and what they answered."""
        return transcriber.served

    @pytest.fixture
    def clip(self, served: ServedModel, speech: Samples) -> Clip:
        """The speech as prepare_clip gets it."""
        rate = served.native_limit.sample_rate
        return audio.from_array(speech, rate, rate).clip()

    @pytest.fixture
    def prepared(self, served: ServedModel, clip: Clip) -> PreparedClip:
        """The speech prepared, every probe answered as if nothing were likelier than anything."""
        return self.prepare(served, clip, ClipContext())

    def prepare(
        self,
        served: ServedModel,
        clip: Clip,
        context: ClipContext,
        request: TranscriptionRequest = TranscriptionRequest(),  # noqa: B008 - an immutable value
    ) -> PreparedClip:
        """Prepare until no probe is open."""
        prepared = served.hooks.prepare_clip(served.model, clip, request, context)
        answers = {probe.name: (-10.0,) * len(probe.token_ids) for probe in prepared.probes}
        if answers.keys() <= context.probe_results.keys():
            return prepared
        context = evolve(context, probe_results={**context.probe_results, **answers})
        return self.prepare(served, clip, context, request)

    def test_registering_is_cheap(self) -> None:
        """Listing plugins loads neither torch nor transformers nor librosa."""
        result = run([sys.executable, "-c", _DISCOVER], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == "[]"

    def test_policies_answer_before_anything_is_loaded(self, served: ServedModel) -> None:
        """``explain`` must need no weights: the same answers from the checkpoint alone."""
        named = CheckpointModel(served.card, served.model.checkpoint)
        assert served.hooks.native_limit(named) == served.native_limit
        assert served.hooks.chunk_policy(named) == served.chunk_policy
        assert served.hooks.encoder_policy(named) == served.encoder_policy

    def test_limits_are_consistent(self, served: ServedModel) -> None:
        """A chunk fits the model, and the limit says where it comes from."""
        limit, policy = served.native_limit, served.chunk_policy
        assert limit.sample_rate > 0
        if limit.seconds is not None:
            assert limit.seconds > 0
            assert "seconds" in limit.sources
            assert (policy.target_s or limit.seconds) <= limit.seconds

    def test_languages_are_codes(self, served: ServedModel) -> None:
        """Lower-case, each once."""
        languages = served.capabilities.languages
        assert list(languages) == [code.lower() for code in dict.fromkeys(languages)]

    def test_preparing_is_a_function(self, served: ServedModel, clip: Clip, prepared: PreparedClip) -> None:
        """The same clip and context prepare to the same values: the core may ask again."""
        assert self.prepare(served, clip, ClipContext()) == prepared

    def test_prepared_values_fit_together(self, served: ServedModel, clip: Clip, prepared: PreparedClip) -> None:
        """Spans lie in the clip, slices in their spans, and a generation has an end."""
        length = clip.end_sample - clip.start_sample
        assert prepared.spans
        for span in prepared.spans:
            assert 0 <= span.start_sample <= span.end_sample <= length
            assert span.tokens > 0 or served.engine is None
        for part in prepared.prompt:
            if isinstance(part, AudioSlice):
                assert 0 <= part.first < part.first + part.count <= prepared.spans[part.span].tokens
        if served.engine is not None:
            assert prepared.stop
            assert prepared.budget > 0

    def test_callers_text_is_text(self, served: ServedModel, clip: Clip, special: Mapping[str, int]) -> None:
        """A special token in a caller's text is refused, or taken as the text it is."""
        for text in special:
            for request in _free_text(served.capabilities, text):
                try:
                    served.hooks.check_request(served.model, request)
                except InvalidRequestError:
                    continue
                harmless = next(iter(_free_text(served.capabilities, "x", like=request)))
                told, asked = (self.prepare(served, clip, ClipContext(), one) for one in (harmless, request))
                assert _slices(asked) == _slices(told)
                assert _counts(asked, special) == _counts(told, special)

    def test_company_changes_nothing(self, served: ServedModel, clip: Clip, prepared: PreparedClip) -> None:
        """As many rows as planned, and the same ones alone and beside a shorter clip; likewise recognised tokens."""
        half = evolve(clip, end_sample=clip.end_sample // 2)
        shorter = self.prepare(served, half, ClipContext())
        feature = served.hooks.extract_features(served.model, clip, prepared.spans)[0]
        other = served.hooks.extract_features(served.model, half, shorter.spans)[0]
        alone, together = _compute(served, [feature])[0], _compute(served, [other, feature])[1]
        if served.engine is None:
            assert together == alone
        else:
            assert len(alone) == prepared.spans[0].tokens
            np.testing.assert_allclose(_array(together), _array(alone), atol=ATOL)

    def test_decoding_is_a_function(self, transcriber: Transcriber, served: ServedModel, speech: Samples) -> None:
        """The same piece for the same tokens and state: the core offers held tokens again."""
        state: Any = None
        for segment in transcriber.transcribe(speech).segments:
            for token in segment.tokens:
                kept = deepcopy(state)
                first = served.hooks.decode_tokens(served.model, (token,), state, False, ())
                # From a copy, so that a state that was written to shows.
                assert served.hooks.decode_tokens(served.model, (token,), kept, False, ()) == first
                state = first[1]
        served.hooks.decode_tokens(served.model, (), state, True, ())

    def test_silence_has_no_words(self, transcriber: Transcriber, served: ServedModel) -> None:
        """Two seconds of digital silence."""
        transcript = transcriber.transcribe(np.zeros(2 * served.native_limit.sample_rate, np.float32))
        assert transcript.text == ""
        assert [stretch.state for stretch in transcript.coverage] == ["silent"]

    @pytest.mark.parametrize("samples", [1, 159, 399, 400, 1600])
    def test_very_short_audio_has_an_answer(self, transcriber: Transcriber, samples: int) -> None:
        """Words or a typed error, never a crash."""
        tone = np.sin(np.arange(samples, dtype=np.float32))
        transcript = _answer(transcriber, tone)
        if transcript is not None:
            assert transcript.duration == pytest.approx(samples / transcriber.served.native_limit.sample_rate)

    def test_longer_than_native_is_heard_in_clips(self, transcriber: Transcriber, served: ServedModel) -> None:
        """Each fits the model, and together they have every sample once."""
        limit = served.native_limit
        if limit.seconds is None or limit.seconds > 120:
            pytest.skip("the limit is beyond what a test should hold in memory")
        noise = np.full(round((limit.seconds + 1) * limit.sample_rate), 0.1, np.float32)
        coverage = transcriber.transcribe(noise).coverage
        assert [0, *(part.end_sample for part in coverage)] == [*(part.start_sample for part in coverage), len(noise)]
        assert all(part.end_sample - part.start_sample <= limit.seconds * limit.sample_rate for part in coverage)

    def test_odd_audio_changes_nobody_elses_answer(self, transcriber: Transcriber, speech: Samples) -> None:
        """The same words before and after audio that is loud, constant, or not a number."""
        before = transcriber.transcribe(speech)
        for odd in (speech * 1000, np.full(4000, 0.5, np.float32), np.full(4000, np.nan, np.float32)):
            _answer(transcriber, odd)
        after = transcriber.transcribe(speech)
        assert (after.text, after.segments) == (before.text, before.segments)

    def test_segments_lie_in_the_audio(self, transcriber: Transcriber, speech: Samples) -> None:
        """0 <= start <= end <= duration, in order, and their texts are the text."""
        transcript = transcriber.transcribe(speech)
        bounds = [bound for segment in transcript.segments for bound in (segment.start_ms, segment.end_ms)]
        starts = [segment.start_ms for segment in transcript.segments]
        assert starts == sorted(starts)
        assert all(0 <= bound <= round(1000 * transcript.duration) for bound in bounds)
        assert join_texts(segment.text for segment in transcript.segments) == transcript.text

    def test_commands_of_the_readme_work(self, served: ServedModel) -> None:
        """As they stand there, in the repository's root."""
        if self.readme is None:
            pytest.skip("no README to try")
        blocks = re.findall(r"^```bash\n(.*?)^```", self.readme.read_text(), re.DOTALL | re.MULTILINE)
        commands = [line for block in blocks for line in block.splitlines() if line.startswith("asr-core transcribe ")]
        assert commands
        for command in commands:
            arguments = shlex.split(command)[1:]
            done = run(_asr_core(*arguments, *_opened(served)), cwd=self.readme.parents[2], capture_output=True)
            assert done.returncode == 0, done.stderr.decode()

    def test_it_is_served_under_its_name(self, transcriber: Transcriber, served: ServedModel, speech: Samples) -> None:
        """The same words over HTTP as in this process."""
        wav = _wav(speech, served.native_limit.sample_rate)
        arguments = ("serve", "--model", served.card.name, "--port", "0", *_opened(served))
        with Popen(_asr_core(*arguments), stdout=PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                lines = iter(process.stdout.readline, "")
                url = next(line.split()[-1] for line in lines if line.startswith("serving on "))
                answer = _post(url, {"model": served.card.name}, wav)
            finally:
                process.terminate()
        assert answer["text"] == transcriber.transcribe(wav).text


def _free_text(
    capabilities: Capabilities, text: str, like: TranscriptionRequest | None = None
) -> Iterator[TranscriptionRequest]:
    """A request per field that takes any text, with ``text`` in it; with ``like`` only the one with the same fields."""
    requests = [TranscriptionRequest(prompt=text)] if capabilities.prompt else []
    requests += [TranscriptionRequest(keywords=("a", text))] if capabilities.keywords else []
    requests += [
        TranscriptionRequest(options={option.name: text})
        for option in capabilities.options
        if option.type == "string" and not option.choices
    ]
    for request in requests:
        if like is None or _fields(request) == _fields(like):
            yield request


def _fields(request: TranscriptionRequest) -> tuple[bool, bool, frozenset[str]]:
    return request.prompt is None, not request.keywords, frozenset(request.options)


def _slices(prepared: PreparedClip) -> list[AudioSlice]:
    return [part for part in prepared.prompt if isinstance(part, AudioSlice)]


def _counts(prepared: PreparedClip, special: Mapping[str, int]) -> list[int]:
    ids = [token for part in prepared.prompt if not isinstance(part, AudioSlice) for token in part]
    return [ids.count(token) for token in special.values()]


def _asr_core(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "asr_core.cli", *arguments]


def _opened(served: ServedModel) -> tuple[str, ...]:
    """Options that open the same checkpoint in the same way."""
    return ("--checkpoint", served.model.checkpoint.reference, "--device", "cpu", "--dtype", "float32")


def _wav(samples: Samples, rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def _post(url: str, fields: Mapping[str, str], file: bytes) -> Any:
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    parts.append(('name="file"; filename="speech.wav"', file))
    body = b"".join(b"--x\r\ncontent-disposition: form-data; %s\r\n\r\n%s\r\n" % (n.encode(), v) for n, v in parts)
    headers = {"content-type": "multipart/form-data; boundary=x"}
    request = Request(f"{url}/v1/audio/transcriptions", body + b"--x--\r\n", headers)
    with urlopen(request, timeout=300) as answer:
        return json.load(answer)


def _compute(served: ServedModel, features: list[Feature]) -> Sequence[Any]:
    hook = served.hooks.recognize_batch if served.engine is None else served.hooks.encode_batch
    return served.compute.submit(lambda: _whole(hook(served.model, features))).result()


def _whole(answer: Sequence[Any] | Generator[None, None, Sequence[Any]]) -> Sequence[Any]:
    while isinstance(answer, Generator):
        try:
            next(answer)
        except StopIteration as end:
            answer = end.value
    return answer


def _array(rows: Any) -> Any:
    return rows.float().cpu().numpy()


def _answer(transcriber: Transcriber, samples: Samples) -> Transcript | None:
    """The transcript, or None where the audio was refused as the caller's fault."""
    try:
        return transcriber.transcribe(samples)
    except InvalidRequestError:
        return None
