"""Files from the Hugging Face hub, with one quick question whether it can be reached instead of a minute of retries.

``ways`` are a plugin's own ways around a repository out of reach, for the error message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from asr_core.errors import CheckpointError

_PATIENCE_S = 5.0


def reachable() -> bool:
    """Whether the hub answers at all, within seconds; False in offline mode (``HF_HUB_OFFLINE``) without asking."""
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode():
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE_S)
    except Exception:  # of whichever HTTP client this release of huggingface_hub is built on
        return False
    return True


def cached(repository: str, name: str) -> Path | None:
    """A file of the local cache, without any network; None too where ``repository`` is no hub id at all."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repository, name)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def fetch(repository: str, name: str, *, online: bool, ways: Sequence[str] = ()) -> Path | None:
    """Download one file, or find it in the cache when not ``online``; None when the repository has no such file.

    Raises:
        CheckpointError: neither worked; the message says what would.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, name, local_files_only=not online, etag_timeout=_PATIENCE_S))
    except LocalEntryNotFoundError as error:
        raise unavailable(repository, error, ways) from error
    except EntryNotFoundError:
        return None
    except Exception as error:
        # httpx, huggingface_hub, the file system and the transfer library each have their own tree
        raise unavailable(repository, error, ways) from error


def optional(repository: str, name: str, *, online: bool) -> Path | None:
    """A file that the repository may lack: offline it may lack in the cache for that reason, which is no error."""
    return fetch(repository, name, online=True) if online else cached(repository, name)


def fetch_all(repository: str, patterns: Iterable[str], *, ways: Sequence[str] = ()) -> Path:
    """Download all files that match one of the ``patterns``; the directory they are in.

    Raises:
        CheckpointError: the hub cannot be reached and the cache lacks them.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                repository, allow_patterns=list(patterns), local_files_only=not reachable(), etag_timeout=_PATIENCE_S
            )
        )
    except Exception as error:
        raise unavailable(repository, error, ways) from error


def unavailable(repository: str, reason: object, ways: Sequence[str] = ()) -> CheckpointError:
    """The error for a repository out of reach, with every way around it."""
    around = "; ".join(
        [
            *ways,
            "give a local directory instead of the name",
            "or put the repository into the cache (HF_HOME) where there is network, then set HF_HUB_OFFLINE=1",
        ]
    )
    return CheckpointError(f"{repository} is not on this machine and could not be fetched: {around} ({reason})")
