"""Files of a package in memory or on disk, and how they are written: the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from compiler import (
    UsageError,
    publish_directory,
    sha256_file,
    staging_directory,
    stream_atomic,
    write_atomic,
)

CHECKSUMS = "SHA256SUMS"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes within a file, as those of a member of an archive."""

    path: Path
    offset: int
    size: int

    def open(self) -> BinaryIO:
        """A stream of them."""
        return io.BufferedReader(_PartReader(self))


class _PartReader(io.RawIOBase):
    """Reads a part of a file as if it were a file."""

    def __init__(self, part: FilePart) -> None:
        self._part = part
        self._file = part.path.open("rb")
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._part.offset + self._at)
        count = self._file.readinto(view[: max(0, min(len(view), self._part.size - self._at))])
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file of a package: its path there, with slashes, and its bytes or the file that has them."""

    path: str
    content: bytes | Path | FilePart
    executable: bool = False

    @property
    def size(self) -> int:
        """Its bytes."""
        if isinstance(self.content, bytes):
            return len(self.content)
        return self.content.size if isinstance(self.content, FilePart) else self.content.stat().st_size

    @property
    def sha256(self) -> str:
        """The checksum of its bytes, as 64 hexadecimal digits."""
        if isinstance(self.content, bytes):
            return hashlib.sha256(self.content).hexdigest()
        if isinstance(self.content, Path):
            return sha256_file(self.content)
        digest = hashlib.sha256()
        with self.open() as stream:
            while block := stream.read(_CHUNK_BYTES):
                digest.update(block)
        return digest.hexdigest()

    def open(self) -> BinaryIO:
        """A stream of its bytes."""
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        return self.content.open() if isinstance(self.content, FilePart) else self.content.open("rb")


def with_checksums(files: Iterable[PackedFile]) -> list[PackedFile]:
    """The files in order of their paths, and a list of their checksums as sha256sum writes and reads it."""
    found = sorted(files, key=lambda one: one.path)
    lines = "".join(f"{one.sha256}  {one.path}\n" for one in found)
    return sorted([*found, PackedFile(CHECKSUMS, lines.encode())], key=lambda one: one.path)


def write_folder(files: Sequence[PackedFile], target: Path) -> None:
    """Write files as the folder `target`, which is there with all of them or not at all.

    Raises UsageError where there is something of that name already, and HostError.
    """
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise UsageError(
            "there is something of that name already",
            where=f"-o {target}",
            hint="name another folder, or remove it",
        )
    with staging_directory(target) as staging:
        tree = staging / "tree"
        for one in files:
            _write_one(one, tree / one.path)
        publish_directory(tree, target)


def _write_one(one: PackedFile, path: Path) -> None:
    if isinstance(one.content, bytes):
        write_atomic(path, one.content, mode=0o755 if one.executable else None)
        return
    with one.open() as source, stream_atomic(path, executable=one.executable) as stream:
        shutil.copyfileobj(source, stream, _CHUNK_BYTES)


def write_archive(files: Sequence[PackedFile], folder: str, output: Path) -> None:
    """Write files as a tar, all in one folder; compressed where the name of `output` ends in .gz or .tgz."""
    placed = [PackedFile(f"{folder}/{one.path}", one.content, one.executable) for one in files]
    with stream_atomic(output) as stream:
        if output.name.endswith((".gz", ".tgz")):
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=stream, mtime=0) as packed:
                write_tar(placed, packed)
        else:
            write_tar(placed, stream)


def write_tar(files: Sequence[PackedFile], stream: BinaryIO | gzip.GzipFile) -> None:
    """Write a tar: folders before what is in them, sorted, owned by root, of the year 1970."""
    folders = {str(parent) for one in files for parent in PurePosixPath(one.path).parents} - {".", "/"}
    entries: dict[str, PackedFile | None] = {**dict.fromkeys(folders), **{one.path: one for one in files}}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, one in sorted(entries.items()):
            member = tarfile.TarInfo(path)
            if one is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
                continue
            member.size, member.mode = one.size, 0o755 if one.executable else 0o644
            with one.open() as source:
                archive.addfile(member, source)
