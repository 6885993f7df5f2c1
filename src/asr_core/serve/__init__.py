"""The HTTP server: OpenAI's speech-to-text routes over models that are already loaded."""

from asr_core.serve.app import create_app
from asr_core.serve.auth import Keys, read_keys
from asr_core.serve.server import ServerOptions, run

__all__ = ["Keys", "ServerOptions", "create_app", "read_keys", "run"]
