"""What the bundled compiler needs inside a container: its own sources and pinned Python packages, as one tar.

Nothing of the host's Python gets in: packages are wheels that pip fetches for the *container's* Python,
each checked against a sha256 in `recipes/python-packages/`, and kept in the cache.
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import compiler
from compiler import (
    BadInputError,
    HostError,
    InternalError,
    content_key,
    load_settings,
    private_directory,
    replace_atomic,
    run,
    sha256_file,
)
from toolchain.data import data_directory

PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
"""Wheels that may be used: images of a glibc of 2.28 or newer, and older tags."""
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LAYOUT = "2"
"""Raised when the tar's layout changes."""
_LEFT_OUT = ("__pycache__", "data")


def pinned_packages(python: str, extra: str = "") -> Path:
    """The requirements file with hashes for a Python version such as `3.11`; raises BadInputError.

    extra: that of what an extra of the project needs besides.
    """
    directory = data_directory("recipes") / "python-packages" / extra
    path = directory / f"{python}.txt"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in directory.glob("*.txt")))
        raise BadInputError(
            f"the image's Python {python} has no pinned packages for the bundled compiler",
            where=str(directory),
            hint=f"use an image with Python {known}",
        )
    return path


def _pins(python: str, extra: str) -> tuple[Path, ...]:
    return (pinned_packages(python), *((pinned_packages(python, extra),) if extra else ()))


def bundle_key(python: str, extra: str = "") -> str:
    """64 hex digits of everything that `write_bundle` writes for this Python and extra."""
    files = [f"{name} {sha256_file(path)}" for name, path in _sources()]
    return content_key(_LAYOUT, *map(sha256_file, _pins(python, extra)), *files)


def write_bundle(python: str, stream: BinaryIO, *, extra: str = "", index: str | None = None) -> None:
    """Write the tar: `packages/` is a site-packages folder, `source/` holds compiler and toolchain.

    Owned by root, readable by all, without times: the same inputs give the same bytes. `index` is a site's
    package index. Raises HostError when a wheel cannot be fetched.
    """
    wheels = [one for pins in _pins(python, extra) for one in fetch_wheels(python, pins, index=index)]
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in _sources():
            _add(archive, f"source/{name}", path.read_bytes())
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as content:
                for entry in sorted(content.namelist()):
                    if (place := _installed(entry)) is not None:
                        _add(archive, f"packages/{place}", content.read(entry))


def fetch_wheels(python: str, pins: Path, *, index: str | None = None) -> tuple[Path, ...]:
    """The wheels of a file of pins, from the cache or by pip.

    Raises HostError when pip is missing or cannot fetch.
    """
    allowed = frozenset(_HASH.findall(pins.read_text()))
    store = load_settings().cache_dir / "wheels" / sha256_file(pins)
    kept = tuple(sorted(path for path in store.glob("*.whl") if sha256_file(path) in allowed))
    if len(kept) == len(allowed):
        return kept
    with private_directory("tk-wheels") as directory:
        done = run(_pip(python, pins, directory, index))
        if done.returncode != 0:
            raise HostError(
                "cannot fetch the Python packages of the bundled compiler",
                where=str(pins),
                why=_last_line(done.stderr),
                hint="that needs pip and a package index once: check the network, PIP_CERT and the mirror",
            )
        for path in sorted(directory.glob("*.whl")):
            if sha256_file(path) not in allowed:
                raise InternalError("pip fetched a file that is not pinned", where=path.name)
            replace_atomic(path, store / path.name)
    return tuple(sorted(store.glob("*.whl")))


def _pip(python: str, pins: Path, directory: Path, index: str | None) -> Sequence[str]:
    platforms = [word for one in PLATFORMS for word in ("--platform", one)]
    where = ["--index-url", index] if index else []
    return (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", python),
        *(*platforms, *where, "--dest", str(directory), "--requirement", str(pins)),
    )


def _sources() -> Iterator[tuple[str, Path]]:
    """Name in the bundle and path of every file of compiler and toolchain, in a fixed order."""
    root = Path(compiler.__file__).parent.parent
    for package in ("compiler", "toolchain"):
        for path in sorted((root / package).rglob("*")):
            name = path.relative_to(root)
            if path.is_file() and not set(_LEFT_OUT) & set(name.parts):
                yield name.as_posix(), path


def _installed(entry: str) -> str | None:
    """Where a file of a wheel goes below site-packages; None for what is not a module (scripts, headers)."""
    path = PurePosixPath(entry)
    if entry.endswith("/") or path.is_absolute() or ".." in path.parts:
        return None
    if not path.parts[0].endswith(".data"):
        return entry
    inside = path.parts[2:]
    return "/".join(inside) if path.parts[1] in ("purelib", "platlib") and inside else None


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755 if name.endswith(".so") else 0o644
    archive.addfile(entry, io.BytesIO(data))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1]
