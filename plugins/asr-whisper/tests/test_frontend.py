"""Features and prompts against transformers, librosa and OpenAI's own code."""

from __future__ import annotations

import inspect
import itertools
from functools import cache

import librosa
import numpy as np
import pytest
import whisper
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from transformers import WhisperFeatureExtractor, WhisperTokenizer
from whisper.decoding import DecodingOptions, DecodingTask
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import LANGUAGES

from asr_core.admission import admit
from asr_core.errors import CheckpointError, InvalidRequestError
from asr_core.types import (
    AudioSpan,
    ClipContext,
    FrontendModel,
    PreparedClip,
    Probe,
    Samples,
    TranscriptionRequest,
    Waveform,
)
from asr_whisper import plugin
from asr_whisper.frontend import (
    BEGIN,
    TEMPERATURES,
    Frontend,
    extract_features,
    prepare_clip,
    prepare_frontend,
    temperatures,
)
from asr_whisper.names import DIMENSIONS

from .test_policy import installed
from .test_tokenizer import found, openais

SECOND = 16_000
CLIP = Waveform(np.ones(3 * SECOND, np.float32), SECOND, b"").clip(SECOND // 2)
TIMED = frozenset({"segment"})
CODES = list(LANGUAGES)[:99]
ANSWER = {BEGIN: (-3.0, *[-5.0] * 99)}


def prepared(frontend: Frontend, context: ClipContext | None = None, **request: object) -> PreparedClip:
    return prepare_clip(frontend, CLIP, TranscriptionRequest(**request), context or ClipContext())  # type: ignore[arg-type]


def prompt(frontend: Frontend, **request: object) -> list[int]:
    (tokens,) = prepared(frontend, **request).prompt
    assert isinstance(tokens, tuple)
    return list(tokens)


@pytest.fixture(scope="module")
def english() -> Frontend:
    return prepare_frontend(found("whisper-tiny.en"))


@cache
def of_size(name: str) -> Frontend:
    """The base model's tokenizer with the mel bins of another."""
    checkpoint = found("whisper-base")
    dims = evolve(checkpoint.config.dims, mels=DIMENSIONS[name].mels)
    return prepare_frontend(evolve(checkpoint, config=evolve(checkpoint.config, dims=dims)))


def test_a_tokenizer_without_a_promised_language_is_refused() -> None:
    checkpoint = found("whisper-base")
    larger = evolve(checkpoint, config=evolve(checkpoint.config, dims=DIMENSIONS["whisper-large-v3"]))
    with pytest.raises(CheckpointError, match="no token for yue"):
        prepare_frontend(larger)


@cache
def openai_model(multilingual: bool) -> Whisper:
    """No weights worth the name, but OpenAI's code asks it for its vocabulary and context."""
    return Whisper(ModelDimensions(80, 1500, 8, 1, 1, 51864 + multilingual, 448, 8, 1, 1))


def openai_prompt(multilingual: bool = True, **options: object) -> list[int]:
    openais(multilingual)  # opens the vocabulary, if no test has yet
    return list(DecodingTask(openai_model(multilingual), DecodingOptions(**options)).initial_tokens)  # type: ignore[arg-type]


# Features


def features(frontend: Frontend, samples: Samples) -> Samples:
    (feature,) = extract_features(frontend, Waveform(samples, SECOND, b"").clip(), [AudioSpan(0, len(samples), 1500)])
    assert feature.length == len(samples) // 160
    return feature.data


def log_mel(samples: Samples, mels: int) -> Samples:
    """librosa's defaults are Slaney's mel scale and norm, a periodic Hann window and centred frames."""
    padded = np.pad(samples, (0, 30 * SECOND - len(samples)))
    power = librosa.feature.melspectrogram(
        y=padded, sr=SECOND, n_fft=400, hop_length=160, n_mels=mels, power=2.0, pad_mode="reflect"
    )
    logs = np.log10(np.maximum(power[:, :-1], 1e-10))
    scaled: Samples = (np.maximum(logs, logs.max() - 8) + 4) / 4
    return scaled


@cache
def stock_extractor(mels: int) -> WhisperFeatureExtractor:
    return WhisperFeatureExtractor(feature_size=mels)


SIZES = pytest.mark.parametrize(("name", "mels"), [("whisper-base", 80), ("whisper-large-v3", 128)])
LENGTHS = pytest.mark.parametrize("length", [1, SECOND, 30 * SECOND])
FRAMES = pytest.mark.parametrize("frames", [1, 2, 3, 10, 101, 2997, 2998, 2999, 3000])


@SIZES
@FRAMES
@pytest.mark.parametrize("more", [-200, -81, -1, 0, 1, 40, 79])
def test_features_are_those_of_transformers(reading: Samples, name: str, mels: int, frames: int, more: int) -> None:
    """Around the ends of frames and of the window: only what sounds is computed, and what follows it is known."""
    samples = np.resize(reading[SECOND:], min(max(160 * frames + more, 1), 30 * SECOND))
    expected = stock_extractor(mels)(samples, sampling_rate=SECOND, return_tensors="np").input_features[0]
    np.testing.assert_allclose(features(of_size(name), samples), expected, rtol=0, atol=1e-4)


@SIZES
@LENGTHS
def test_features_are_those_of_openais_package_and_of_librosa(
    reading: Samples, name: str, mels: int, length: int
) -> None:
    samples = np.resize(reading[SECOND:], length)
    found = features(of_size(name), samples)
    assert found.shape == (mels, 3000)
    assert found.dtype == np.float32
    # Values lie within -1.5 and 1.5; two float32 transforms agree to 2e-5, two filter banks a bin apart do not to 0.01.
    np.testing.assert_allclose(found, log_mel(samples, mels), rtol=0, atol=1e-4)
    openai = whisper.log_mel_spectrogram(whisper.pad_or_trim(samples), mels).numpy()
    np.testing.assert_allclose(found, openai, rtol=0, atol=1e-4)


def test_features_are_of_the_span_within_the_clip_within_the_audio(frontend: Frontend, reading: Samples) -> None:
    clip = Waveform(reading, SECOND, b"").clip(2 * SECOND, 7 * SECOND)
    spans = [AudioSpan(0, 5 * SECOND, 1500), AudioSpan(SECOND, 3 * SECOND, 1500)]
    whole, part = extract_features(frontend, clip, spans)
    assert np.array_equal(whole.data, features(frontend, reading[2 * SECOND : 7 * SECOND]))
    assert np.array_equal(part.data, features(frontend, reading[3 * SECOND : 5 * SECOND]))
    assert (whole.length, part.length) == (500, 200)


def test_the_window_is_what_the_encoder_has_positions_for() -> None:
    checkpoint = found("whisper-base")
    dims = evolve(checkpoint.config.dims, audio_context=500)
    short = prepare_frontend(evolve(checkpoint, config=evolve(checkpoint.config, dims=dims)))
    assert features(short, np.ones(SECOND, np.float32)).shape == (80, 1000)
    # 125 of sound, 50 of silence, and of 325 more one in eight, with five left over.
    assert prepared(short).spans[0].tokens == 125 + 50 + 5 + 40


def test_one_span_covers_the_clip(frontend: Frontend) -> None:
    clip = prepared(frontend)
    # 125 of sound, 50 of silence, and of 1325 more one in eight, 160 of them, with 45 left over.
    assert clip.spans == (AudioSpan(0, 5 * SECOND // 2, tokens=125 + 50 + 45 + 160),)
    assert clip.cross == 0


# Language and task


def test_language_and_task_tokens_are_those_of_openais_package(frontend: Frontend) -> None:
    for language, task in itertools.product(frontend.special.languages, ["transcribe", "translate"]):
        for times in (TIMED, frozenset[str]()):
            tokens = prompt(frontend, language=language, task=task, times=times)
            assert tokens == openai_prompt(language=language, task=task, without_timestamps=not times)


def test_language_and_task_tokens_are_those_of_transformers(frontend: Frontend) -> None:
    tokenizer = WhisperTokenizer(tokenizer_object=frontend.tokenizer)
    for language, task in itertools.product(frontend.special.languages, ["transcribe", "translate"]):
        for times in (TIMED, frozenset[str]()):
            tokenizer.set_prefix_tokens(language=language, task=task, predict_timestamps=bool(times))
            assert prompt(frontend, language=language, task=task, times=times) == tokenizer.prefix_tokens


def test_english_only_models_are_told_neither_language_nor_task(english: Frontend) -> None:
    assert prompt(english, language="en") == prompt(english) == openai_prompt(False, without_timestamps=True)
    assert prompt(english, times=TIMED) == openai_prompt(False)
    assert len(openai_prompt(False)) == 1


def test_english_only_models_speak_english(english: Frontend) -> None:
    assert prepared(english).language == "en"


def test_the_end_of_text_stops(frontend: Frontend, english: Frontend) -> None:
    assert prepared(frontend).stop == {openais(True).eot}
    assert prepared(english).stop == {openais(False).eot}


# Which language?


def test_without_a_language_the_model_is_asked_for_it(frontend: Frontend) -> None:
    openai = openais(True)
    languages = [openai.to_language_token(code) for code in CODES]
    asked = Probe(BEGIN, ((openai.sot,),), (openai.no_speech, *languages))
    clip = prepared(frontend)
    assert clip.probes == (asked,)
    assert clip.language is None


@pytest.mark.parametrize("language", ["en", "zh", "ko", "haw", "su"])
def test_the_likeliest_language_is_taken(frontend: Frontend, language: str) -> None:
    # That nobody speaks is likelier still, but no language.
    answer = (-0.1, *(-2.0 if code == language else -3.0 for code in CODES))
    clip = prepared(frontend, ClipContext(probe_results={BEGIN: answer}))
    assert clip.language == language
    assert clip.prompt == (tuple(openai_prompt(language=language, without_timestamps=True)),)
    assert [probe.name for probe in clip.probes] == [BEGIN]  # answered already, so not asked again


def test_only_candidates_are_asked_for_and_chosen_from(frontend: Frontend) -> None:
    special = frontend.special
    asked = prepared(frontend, languages=("sw", "en", "de")).probes
    ids = (special.no_speech, *(special.languages[code] for code in ("sw", "en", "de")))
    assert asked == (Probe(BEGIN, ((special.sot,),), ids),)
    answer = ClipContext(probe_results={BEGIN: (-0.1, -9.0, -8.0, -7.0)})
    assert prepared(frontend, answer, languages=("sw", "en", "de")).language == "de"
    assert prepared(frontend, answer, languages=("de", "sw", "en")).language == "en"


def test_an_earlier_clips_language_leaves_no_choice_among_candidates(frontend: Frontend) -> None:
    later = prepared(frontend, ClipContext(language="de"), languages=("sw", "de"))
    assert later.language == "de"
    assert later.probes == ()


def test_a_given_language_is_not_asked_for(frontend: Frontend) -> None:
    by_caller = prepared(frontend, language="fr")
    by_earlier_clip = prepared(frontend, ClipContext(language="fr"))
    assert by_caller.probes == by_earlier_clip.probes == ()
    assert by_caller.language == by_earlier_clip.language == "fr"
    assert by_caller.prompt == by_earlier_clip.prompt


def test_the_callers_language_beats_that_of_an_earlier_clip(frontend: Frontend) -> None:
    assert prepared(frontend, ClipContext(language="de"), language="fr").language == "fr"


def test_an_english_only_model_is_asked_for_no_language(english: Frontend) -> None:
    assert prepared(english).probes == ()


# Text that came before

SCRIPTS = "aB ,.'1éßдЖЩλΩאבعرक्षिไทยกำ漢字仮名ひらカナ한국어룰루👋🏽👩\u200d💻\n\t"


@settings(max_examples=60, deadline=None)  # the machine may be busy
@given(text=st.text(st.sampled_from(SCRIPTS), max_size=40))
def test_a_prompt_is_text_before_as_in_openais_package(frontend: Frontend, text: str) -> None:
    expected = openai_prompt(language="en", prompt=text.strip(), without_timestamps=True)
    assert prompt(frontend, language="en", prompt=text) == expected


def test_words_that_begin_with_a_t_are_cut_as_in_openais_package(frontend: Frontend) -> None:
    expected = openai_prompt(language="en", prompt="to the town", without_timestamps=True)
    assert prompt(frontend, language="en", prompt="to the town") == expected


def test_a_prompt_is_text_before_as_in_transformers(frontend: Frontend) -> None:
    tokenizer = WhisperTokenizer(tokenizer_object=frontend.tokenizer)
    text = "  Grüße aus 서울, und نعم! "
    expected = tokenizer.get_prompt_ids(text).tolist()
    assert prompt(frontend, language="de", prompt=text)[:-4] == expected


@pytest.mark.parametrize("words", [200, 222, 223, 224, 225, 1000])
@pytest.mark.parametrize("times", [TIMED, frozenset()])
def test_of_a_long_prompt_the_end_is_kept(frontend: Frontend, words: int, times: frozenset[str]) -> None:
    text = " ".join(["and", "cat", "sat", "down"][number % 4] for number in range(words))  # a token each
    tokens = prompt(frontend, language="en", prompt=text, times=times)
    assert tokens == openai_prompt(language="en", prompt=text, without_timestamps=not times)
    before = tokens[: tokens.index(openais(True).sot)]
    assert len(before) == 1 + min(words, 223)
    assert before[0] == openais(True).sot_prev
    assert text.endswith(openais(True).decode(before[1:]).strip())


@pytest.mark.parametrize("nothing", [None, "", " ", "\n\t "])
def test_a_prompt_without_text_is_none(frontend: Frontend, nothing: str | None) -> None:
    assert prompt(frontend, language="en", prompt=nothing) == openai_prompt(language="en", without_timestamps=True)


def test_english_only_models_take_a_prompt_too(english: Frontend) -> None:
    expected = openai_prompt(False, prompt="Hello there", without_timestamps=True)
    assert prompt(english, prompt="Hello there") == expected


def after(frontend: Frontend, heard: str, **request: object) -> list[int]:
    (tokens,) = prepared(frontend, ClipContext(previous_text=heard), language="en", **request).prompt
    assert isinstance(tokens, tuple)
    return list(tokens)


def test_the_clip_before_is_text_before_too_and_nearer(frontend: Frontend) -> None:
    expected = openai_prompt(language="en", prompt="Names: Ann, Bob. Ann went to the town.", without_timestamps=True)
    assert after(frontend, "Ann went to the town.", prompt="Names: Ann, Bob.") == expected
    alone = openai_prompt(language="en", prompt="Ann went to the town.", without_timestamps=True)
    assert after(frontend, " Ann went to the town. ") == alone


def test_a_long_clip_before_leaves_the_prompt_no_room(frontend: Frontend) -> None:
    text = " ".join(["and", "cat", "sat", "down"] * 60)  # a token each
    assert after(frontend, text, prompt="Names") == after(frontend, text)


def test_what_the_model_spelled_like_a_special_token_is_left_out(frontend: Frontend) -> None:
    assert after(frontend, "one<|en|> two") == after(frontend, "one two")


def specials(tokenizer: Tokenizer) -> list[str]:
    return [token.content for token in tokenizer.get_added_tokens_decoder().values()]


def assert_all_refused(frontend: Frontend) -> None:
    for token in specials(frontend.tokenizer):
        for text in (token, f"before {token} after", f"be{token}fore", f"{token}after", f"{'before ' * 300}{token}"):
            with pytest.raises(InvalidRequestError) as caught:
                prepared(frontend, prompt=text)
            assert caught.value.param == "prompt"


def test_no_special_token_can_be_typed_into_a_prompt(frontend: Frontend, english: Frontend) -> None:
    assert len(specials(frontend.tokenizer)) == len(specials(english.tokenizer)) == 107
    assert_all_refused(frontend)
    assert_all_refused(english)


def test_a_special_token_is_refused_even_where_it_would_be_cut_off(frontend: Frontend) -> None:
    with pytest.raises(InvalidRequestError):
        prepared(frontend, prompt="<|translate|>" + " word" * 500)


def test_timestamps_are_refused_where_the_tokenizer_has_them(frontend: Frontend) -> None:
    tokenizer = Tokenizer.from_str(frontend.tokenizer.to_str())
    times = [f"<|{20 * number // 1000}.{20 * number % 1000 // 10:02}|>" for number in range(1501)]
    tokenizer.add_tokens([AddedToken(time, special=False, normalized=False) for time in times])
    timed = evolve(frontend, tokenizer=tokenizer)
    assert tokenizer.token_to_id("<|30.00|>") == openais(True).timestamp_begin + 1500
    for time in ("<|0.00|>", "<|1.98|>", "<|30.00|>"):
        with pytest.raises(InvalidRequestError, match="special token"):
            prepared(timed, prompt=f"at{time}once")


@pytest.mark.parametrize("text", ["<|nobody|>", "<|EN|>", "<| en |>", "<en>", "|> <|", "<|e\u200bn|>"])
def test_what_only_looks_like_a_special_token_is_text(frontend: Frontend, text: str) -> None:
    before = prompt(frontend, language="en", prompt=text)[:-4]
    assert openais(True).decode(before[1:]) == f" {text}"


# Room and temperature


@pytest.mark.parametrize("times", [TIMED, frozenset()])
@pytest.mark.parametrize("text", [None, "one", "word " * 1000])
def test_prompt_and_budget_fill_the_context(frontend: Frontend, text: str | None, times: frozenset[str]) -> None:
    clip = prepared(frontend, language="en", prompt=text, times=times)
    assert isinstance(clip.prompt[0], tuple)
    assert len(clip.prompt[0]) + clip.budget == 448


def test_the_ladder_is_openais() -> None:
    assert inspect.signature(whisper.transcribe).parameters["temperature"].default == TEMPERATURES


@pytest.mark.parametrize("temperature", [None, 0.0])
def test_no_temperature_or_zero_is_the_ladder(frontend: Frontend, temperature: float | None) -> None:
    attempts = [
        prepared(frontend, ClipContext(attempt), language="en", temperature=temperature).sampling
        for attempt in range(6)
    ]
    assert [sampling.temperature for sampling in attempts] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert len({sampling.seed for sampling in attempts}) == 6  # else a retry could draw the same again


def test_a_temperature_of_the_callers_is_used_alone(frontend: Frontend) -> None:
    assert prepared(frontend, language="en", temperature=0.7).sampling.temperature == 0.7
    assert list(temperatures(TranscriptionRequest(temperature=0.7))) == [0.7]


@pytest.mark.parametrize(("options", "size"), [({}, 1), ({"beam_size": 1}, 1), ({"beam_size": 5}, 5)])
@pytest.mark.parametrize("temperature", [None, 0.0, 0.7])
def test_the_likeliest_is_searched_for_and_what_is_drawn_is_not(
    frontend: Frontend, options: dict[str, int], size: int, temperature: float | None
) -> None:
    asked = {"language": "en", "temperature": temperature, "options": options}
    sizes = [
        prepared(frontend, ClipContext(attempt), **asked).sampling.beam_size
        for attempt in range(len(temperatures(TranscriptionRequest(temperature=temperature))))
    ]
    assert sizes == ([1] if temperature else [size, 1, 1, 1, 1, 1])


@pytest.mark.parametrize("size", [-1, 0, 11, 10**9])
def test_beams_out_of_range_are_refused_before_audio_is_decoded(frontend: Frontend, size: int) -> None:
    base = installed("whisper-base")
    model = FrontendModel(base.card, base.checkpoint, frontend)
    with pytest.raises(InvalidRequestError, match=f"beam_size is {size}, must be 1 to 10$") as raised:
        plugin.check_request(model, TranscriptionRequest(options={"beam_size": size}))
    assert raised.value.param == "beam_size"
    for allowed in (1, 10):
        plugin.check_request(model, TranscriptionRequest(options={"beam_size": allowed}))


def test_a_beam_is_a_whole_number(frontend: Frontend) -> None:
    for value in ("5", 2.5, True):
        with pytest.raises(InvalidRequestError, match="beam_size must be of type integer") as raised:
            admit(
                "whisper-base",
                plugin.capabilities(installed("whisper-base")),
                TranscriptionRequest(options={"beam_size": value}),
            )
        assert raised.value.param == "beam_size"


def test_all_but_the_temperature_is_the_same_in_a_retry(frontend: Frontend) -> None:
    context = ClipContext(probe_results=ANSWER)
    first = prepared(frontend, context, times=TIMED)
    retry = prepared(frontend, evolve(context, attempt=3, reason="unsure"), times=TIMED)
    assert evolve(retry, sampling=first.sampling) == first


def test_the_grammar_of_timestamps_is_asked_for_with_segment_times_only(frontend: Frontend) -> None:
    timed, untimed = prepared(frontend, times=TIMED).rules, prepared(frontend).rules
    assert timed[:-1] == untimed
    assert timed[-1].begin == openais(True).timestamp_begin  # type: ignore[union-attr]
    assert timed[-1].eot == openais(True).eot  # type: ignore[union-attr]
