"""One package of a library in one of the formats: what would be in it, and writing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler import UsageError, did_you_mean
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.packed import PackedFile, write_archive, write_folder
from toolchain.deploy.tree import tree_files
from toolchain.deploy.wheel import wheel_files, wheel_name, write_wheel

FORMATS = ("dir", "tar", "wheel", "oci")
_SUFFIXES = {".tar": "tar", ".gz": "tar", ".tgz": "tar", ".whl": "wheel"}


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """A file of a package: its path there, its bytes and their checksum."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PackageReport:
    """What was packaged, or would be: `path` is the package, None if it went to an engine alone.

    `bytes` is its size, None if it was not written.
    """

    path: Path | None
    format: str
    name: str
    version: str
    target: str
    machine: str
    licence: str
    library_bytes: int
    bytes: int | None
    files: tuple[PackedEntry, ...]
    image: ImageFacts | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """An option of `docker run` or `podman run` as words for a shell, why, and where that is written."""

    engine: str
    option: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Of a package that is an image: its name, and the digest of its manifest.

    `beside` are the bytes of its files without the library. `untested` says why it has no self test, empty
    where it has one. On an engine: `loaded` bytes there, what its self test said, and where it was pushed to.
    On a base: its name and digest, the bytes of its layers, and `access`, what a container needs.
    """

    reference: str
    digest: str
    beside: int
    untested: str = ""
    loaded: int | None = None
    self_test: str = ""
    pushed: str = ""
    base: str = ""
    base_digest: str = ""
    base_bytes: int = 0
    access: tuple[Access, ...] = ()


def chosen_format(named: str | None, output: Path | None) -> str:
    """The format that is named, else what the output's name says; raises UsageError for an unknown one."""
    by_name = _SUFFIXES.get(output.suffix, "dir") if output is not None else "dir"
    found = named or by_name
    if found not in FORMATS:
        raise UsageError(
            f"there is no format `{found}`",
            where="--format",
            hint=did_you_mean(found, FORMATS) or f"choose {', '.join(FORMATS[:-1])} or {FORMATS[-1]}",
        )
    return found


def default_output(library: PackagedLibrary, kind: str, output: Path | None) -> Path:
    """Where a package goes: `output`, a wheel under the name that it must have; by default here.

    Raises UsageError for a wheel of another name.
    """
    if kind == "wheel":
        return _wheel_place(library, output)
    return output or Path(library.distribution + {"tar": ".tar.gz", "oci": ".oci.tar"}.get(kind, ""))


def _wheel_place(library: PackagedLibrary, output: Path | None) -> Path:
    name = wheel_name(library)
    if output is None or output.suffix != ".whl":
        return (output or Path()) / name
    if output.name != name:
        raise UsageError(
            "a wheel's name is not free",
            where=f"-o {output}",
            hint=f"name a folder, or {output.with_name(name)}",
        )
    return output


def make_package(
    library: PackagedLibrary,
    kind: str,
    output: Path,
    licence_files: Sequence[Path] = (),
    *,
    dry_run: bool = False,
) -> PackageReport:
    """Write the package `output`, or with `dry_run` only say what would be in it.

    Raises UsageError where a folder of that name is there already, and HostError where it cannot be written.
    """
    files = (wheel_files if kind == "wheel" else tree_files)(library, licence_files)
    if not dry_run:
        _write(library, kind, output, files)
    return report_of(library, kind, output, files, None if dry_run else _size(output, files))


def report_of(
    library: PackagedLibrary, kind: str, output: Path | None, files: Sequence[PackedFile], size: int | None
) -> PackageReport:
    """What a package of these files is; `size` in bytes, None where it was not written."""
    return PackageReport(
        path=output,
        format=kind,
        name=library.distribution,
        version=library.version,
        target=str(library.manifest["target"]),
        machine=library.needs.machine,
        licence=library.licences,
        library_bytes=library.path.stat().st_size,
        bytes=size,
        files=tuple(PackedEntry(one.path, one.size, one.sha256) for one in files),
    )


def _write(library: PackagedLibrary, kind: str, output: Path, files: Sequence[PackedFile]) -> None:
    if kind == "wheel":
        write_wheel(files, output)
    elif kind == "tar":
        write_archive(files, library.distribution, output)
    else:
        write_folder(files, output)


def _size(output: Path, files: Sequence[PackedFile]) -> int:
    return sum(one.size for one in files) if output.is_dir() else output.stat().st_size
