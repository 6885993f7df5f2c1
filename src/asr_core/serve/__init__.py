"""The HTTP server: OpenAI's speech-to-text routes over models that are already loaded."""

from asr_core.serve.app import create_app
from asr_core.serve.server import ServerOptions, run

__all__ = ["ServerOptions", "create_app", "run"]
