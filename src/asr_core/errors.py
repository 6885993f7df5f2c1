"""One typed tree for everything that can go wrong.

    AsrError
    ├── InvalidRequestError         400  the caller can mend it
    │   ├── UnsupportedValueError   400  the loaded model cannot do what was asked
    │   ├── AudioError              400  the audio itself
    │   │   ├── UnknownFormatError       not a container on the allow-list
    │   │   ├── NoAudioError             a container without one sample of sound
    │   │   ├── CorruptAudioError        sound that cannot be decoded
    │   │   ├── AudioTooShortError       less sound than the endpoint takes
    │   │   └── DecodeTimeoutError       decoding took longer than the endpoint allows
    │   ├── UploadTooLargeError     413  more bytes than the endpoint takes
    │   ├── UploadStalledError      408  the body stopped arriving
    │   └── AudioTooLongError       400  more seconds than a named layer takes
    ├── AuthenticationError         401  no key, or one this server does not know
    ├── ModelNotFoundError          404  no installed plugin knows the name
    ├── PolicyError                 500  an operator's override that the model cannot be served with
    ├── BenchError                  500  a benchmark was asked for what it cannot measure
    ├── CheckpointError             500  weights or configuration missing, damaged or of a foreign kind
    ├── PluginError                 500  a plugin broke the contract or raised
    │   └── PluginConflictError     500  two plugins claim the same thing
    └── EngineError                 500  generation failed
        ├── EngineMismatchError     500  the engine lacks what the model needs
        ├── OverloadedError         503  the server is closing, or a part of it hangs
        │   └── BusyError           429  a queue is full: the same request may be served later
        └── DeadlineError           504  the request ran out of the time it was given

Every error knows the HTTP status it maps to, OpenAI's ``type`` and ``code``, the ``param`` (request field) at fault,
the ``layer`` that refused and, for a limit, the ``setting`` an operator would have to change, so that no caller of the
core needs a table of its own.
"""

from __future__ import annotations

from typing import ClassVar


class AsrError(Exception):
    """Base of all errors the core raises on purpose; ``message`` is fit for the person who made the request.

    ``setting`` is the name of a field of :class:`~asr_core.types.UploadLimits` or of the server's own limits.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    default_param: ClassVar[str | None] = None
    default_layer: ClassVar[str] = "core"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        layer: str | None = None,
        setting: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param if param is not None else self.default_param
        self.code = code if code is not None else self.default_code
        self.layer = layer if layer is not None else self.default_layer
        self.setting = setting


class InvalidRequestError(AsrError):
    """The request is at fault and the message says how to mend it."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"
    default_layer = "request"


class UnsupportedValueError(InvalidRequestError):
    """A well-formed value that the loaded model, or this endpoint, cannot serve."""

    default_code = "unsupported_value"
    default_layer = "capabilities"


class AudioError(InvalidRequestError):
    """The uploaded audio is at fault."""

    default_param = "file"
    default_layer = "audio"


class UnknownFormatError(AudioError):
    """The bytes do not begin like any container on the allow-list."""


class NoAudioError(AudioError):
    """A readable container that holds no sound."""


class CorruptAudioError(AudioError):
    """A known container whose sound cannot be decoded."""


class AudioTooShortError(AudioError):
    """Fewer seconds than :class:`~asr_core.types.UploadLimits` asks for."""

    default_layer = "upload_limits"


class DecodeTimeoutError(AudioError):
    """Decoding took longer than :class:`~asr_core.types.UploadLimits` allows."""

    default_layer = "upload_limits"


class UploadTooLargeError(InvalidRequestError):
    """More bytes than :class:`~asr_core.types.UploadLimits` allows."""

    status = 413
    default_param = "file"
    default_layer = "upload_limits"


class UploadStalledError(InvalidRequestError):
    """The body of a request stopped arriving."""

    status = 408
    default_code = "upload_stalled"
    default_layer = "http"


class AudioTooLongError(InvalidRequestError):
    """More seconds than one layer takes; ``layer`` says whether it is the endpoint or the model."""

    default_param = "file"
    default_layer = "upload_limits"


class AuthenticationError(AsrError):
    """The caller shows no key, or one that is not known; the message repeats neither."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"
    default_layer = "auth"


class ModelNotFoundError(AsrError):
    """No installed plugin registers or recognises the model asked for."""

    status = 404
    type = "invalid_request_error"
    default_code = "model_not_found"
    default_param = "model"
    default_layer = "plugins"


class CheckpointError(AsrError):
    """A checkpoint cannot be found, read or trusted."""

    default_layer = "checkpoint"


class PolicyError(AsrError):
    """A field of :class:`~asr_core.types.ChunkPolicy`, the ``param``, is given what does not fit it or the model."""

    default_layer = "chunk_policy"


class BenchError(AsrError):
    """A benchmark was asked for what it cannot measure; ``param`` is the option, or the manifest's field, at fault."""

    default_layer = "bench"


class PluginError(AsrError):
    """A plugin broke the contract of a hook, or raised inside it."""

    default_layer = "plugins"


class PluginConflictError(PluginError):
    """Two plugins claim one name or one checkpoint; the message names both."""


class EngineError(AsrError):
    """Generation failed for a reason that is not the caller's."""

    default_layer = "engine"


class EngineMismatchError(EngineError):
    """The chosen engine lacks a feature the model cannot do without."""


class OverloadedError(EngineError):
    """The server is closing, or a part of it cannot go on."""

    status = 503


class BusyError(OverloadedError):
    """As much is waiting or in progress as may be: it is the caller's turn to wait."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"


class DeadlineError(EngineError):
    """The request's deadline passed while it waited or ran."""

    status = 504
