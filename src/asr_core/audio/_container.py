"""An upload opened by FFmpeg, with one demuxer and nothing else within its reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asr_core.audio._codecs import DECODERS
from asr_core.audio._mix import check_header
from asr_core.audio._source import Source
from asr_core.errors import AsrError, CorruptAudioError, NoAudioError, UnknownFormatError

# Values in one decoded frame, all channels together: a frame of FLAC has at most half a million, an honest ALAC one
# 65 thousand, while a header may claim 16 million.
_MAX_FRAME_VALUES = 1 << 22


@contextmanager
def open_container(source: Source, demuxer: str, options: dict[str, str]) -> Iterator[Any]:
    """Give ``source`` as an :class:`av.container.InputContainer`; CorruptAudioError where FFmpeg cannot open it."""
    import av

    whitelists = {
        "protocol_whitelist": "none",
        "format_whitelist": demuxer,
        "codec_whitelist": ",".join(sorted(DECODERS)),
    }
    # FFmpeg takes it for granted that a file stands at its beginning.
    source.seek(0)
    with typed_errors(f"The {demuxer} file cannot be opened"):
        # Tags in a foreign encoding must not refuse a file, hence metadata_errors.
        container = av.open(
            source,
            "r",
            format=demuxer,
            options=whitelists | options,
            metadata_errors="replace",
            io_open=_refuse_to_open,
        )
    try:
        yield container
    finally:
        container.close()


def audio_stream(container: Any) -> Any:
    """The first audio stream, ready to decode on one thread, or an AudioError that says why not."""
    if not len(container.streams):
        raise CorruptAudioError("The file is damaged: nothing in it can be found.")
    if not container.streams.audio:
        video = " It holds only video." if container.streams.video else ""
        raise NoAudioError(f"The file has no audio stream.{video}")
    stream = container.streams.audio[0]
    codec = stream.codec_context
    if codec is None or codec.codec.name not in DECODERS:
        name = "unknown" if codec is None else codec.codec.name
        raise UnknownFormatError(f"The audio codec of the file ({name}) is not supported.")
    check_header(codec.sample_rate, codec.layout.nb_channels)
    # The cores of the machine belong to the models.
    codec.thread_count = 1
    codec.thread_type = "NONE"
    codec.options = {"max_samples": str(_MAX_FRAME_VALUES)}
    if codec.codec.name == "flac":
        # Damaged frames carry a checksum that tells; without this they are played as noise.
        codec.options |= {"err_detect": "crccheck+explode"}
    return stream


@contextmanager
def typed_errors(what: str) -> Iterator[None]:
    """Turn whatever PyAV raises into CorruptAudioError; our own errors and those of the caller's file pass."""
    from av.error import FFmpegError

    try:
        yield
    except AsrError:
        raise
    except FFmpegError as error:
        raise CorruptAudioError(f"{what}: {error.strerror}.") from error
    except (AssertionError, OverflowError, ValueError) as error:
        # PyAV's own checks of what FFmpeg handed to it.
        raise CorruptAudioError(f"{what}: {error}.") from error


def _refuse_to_open(url: str, flags: int, options: dict[str, str]) -> Any:
    raise CorruptAudioError("The file keeps its sound in another file, which is not read.")
