"""A real server on loopback, with the fake model, one that can do all, and one that repeats what it was asked."""

from __future__ import annotations

import io
import os
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pytest

from asr_core.testing import tones
from asr_core.testing.distributions import write_distribution
from asr_core.testing.server import Server

ABLE = '''
    """The fake model in other clothes: it can do all that a request may ask, and shows that it was asked."""

    from attrs import evolve

    from asr_core import ModelCard, hookimpl
    from asr_core.testing import fake
    from asr_core.testing.fake import decode_tokens, encode_batch, extract_features, load_weights, native_limit
    from asr_core.testing.fake import prepare_frontend, streaming_policy
    from asr_core.types import Capabilities, Checkpoint, Sampling, Word


    @hookimpl
    def register_models(register):
        register(ModelCard("able", (), ("testing/able",)))


    @hookimpl
    def resolve_checkpoint(ref):
        return Checkpoint("able", ref, path=None) if ref in ("able", "testing/able") else None


    @hookimpl
    def capabilities():
        return evolve(
            fake.capabilities(),
            tasks=frozenset({"transcribe", "translate"}),
            languages=("en", "de", "xx"),
            detects_language=True,
            candidates=True,
            word_times=True,
            prompt="vocabulary",
            keywords=True,
            temperature=True,
        )


    @hookimpl
    def prepare_clip(clip, request):
        """It detects the first language it may; its translations are shorter than what is said."""
        said = {"behaviour": "early_end"} if request.task == "translate" else request.options
        return evolve(
            fake.prepare_clip(clip, evolve(request, options=said)),
            language=request.language or (request.languages or ("en",))[0],
            sampling=Sampling(temperature=request.temperature or 0.0),
        )


    @hookimpl
    def align_words(output):
        """A byte takes 80 ms, of which the last 30 are silent, as are the first 30 of all."""
        words, at = [], 0
        for text in output.text.split(" "):
            size = len(text.encode())
            words.append(Word(30 + 80 * at, 80 * (at + size), text))
            at += size + 1
        return words
'''

ECHO = '''
    """The fake model in other clothes: it wants every kind of field, and answers with a refusal that quotes them."""

    import json

    from asr_core import ModelCard, hookimpl
    from asr_core.errors import InvalidRequestError
    from asr_core.testing.fake import decode_tokens, encode_batch, extract_features, load_weights, native_limit
    from asr_core.testing.fake import prepare_frontend
    from asr_core.types import Capabilities, Checkpoint, OptionSpec

    TYPES = {"count": "integer", "ratio": "number", "loud": "boolean", "who": "string", "voice": "audio"}


    @hookimpl
    def register_models(register):
        register(ModelCard("org/echo", ("echo",), ("testing/echo",)))


    @hookimpl
    def resolve_checkpoint(ref):
        return Checkpoint("org/echo", ref, path=None)


    @hookimpl
    def capabilities():
        options = tuple(OptionSpec(name, type_, name) for name, type_ in TYPES.items())
        choice = OptionSpec("mood", "string", "mood", choices=("glad", "sad"))
        return Capabilities(
            languages=("de", "en"), prompt="vocabulary", keywords=True, temperature=True, options=(*options, choice)
        )


    @hookimpl
    def prepare_clip(clip, request):
        if request.prompt == "fail":
            raise ValueError("secret of /etc/passwd")
        if request.prompt == "typed":
            raise InvalidRequestError("no such prompt", param="prompt", code="odd")
        asked = {
            "language": request.language,
            "prompt": request.prompt,
            "keywords": request.keywords,
            "temperature": request.temperature,
            "options": dict(request.options),
        }
        raise InvalidRequestError(json.dumps(asked))
'''


def wav(*parts: str | npt.NDArray[np.float32]) -> bytes:
    """Texts in tones and samples as they are, one after another in a file."""
    sound = np.concatenate([tones.speak(part) if isinstance(part, str) else part for part in parts])
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(tones.RATE)
        output.writeframes((sound * 32767).astype(np.int16).tobytes())
    return file.getvalue()


@pytest.fixture(scope="session", name="wav")
def wav_fixture() -> Callable[..., bytes]:
    return wav


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start servers, which end with the session."""
    site = tmp_path_factory.mktemp("site")
    write_distribution(site, "asr-fake", {}, {"fake": "asr_core.testing.fake"})
    write_distribution(site, "asr-echo", {"asr_echo": ECHO}, {"echo": "asr_echo"})
    write_distribution(site, "asr-able", {"asr_able": ABLE}, {"able": "asr_able"})
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "ASR_CORE_PLUGINS_ALLOW": "asr-fake,asr-echo,asr-able"}
    with ExitStack() as stack:

        def start(*arguments: str) -> Server:
            server = Server(tmp_path_factory.mktemp("server"), environment, *arguments)
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture(scope="session")
def server(start: Callable[..., Server]) -> Server:
    """A server with all three models."""
    return start("--model", "fake", "--model", "echo", "--model", "able", "--dtype", "float32")
