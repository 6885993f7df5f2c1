"""A model in this process, asked as Python programs ask it."""

from __future__ import annotations

from asr_core.api import Transcriber
from asr_core.bench.drive import Reply, Request, RequestFailed, Target
from asr_core.errors import AsrError


def library(transcriber: Transcriber) -> Target:
    """Ask ``transcriber``, who is called from as many threads as there are callers."""

    def ask(request: Request) -> Reply:
        try:
            return Reply(transcriber.transcribe(request.wav, language=request.sound.line.language).text)
        except AsrError as error:
            raise RequestFailed(type(error).__name__, error.message) from error

    return ask
