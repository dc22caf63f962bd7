"""Finished libraries, kept by everything that decides over their bytes.

Compiling is reproducible, so a library that was made once may be handed out again: for the same model and
external data, options, target, C++ compiler, tk, numpy and onnx. An entry is a library, named by the digest
of its bytes, and a record that says which library a key stands for and which external data went into it.
Records are read before anything large is imported: a hit costs little more than copying the file.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

from compiler.core import disk
from compiler.core.cache import content_key, touch
from compiler.core.diagnostics import TkError
from compiler.core.files import copy_atomic, sha256_file, stream_atomic, write_atomic

RECORD_VERSION = 3
PACKAGE = Path(__file__).resolve().parent.parent
_CHUNK_BYTES = 1 << 20
_DEPENDENCIES = ("numpy", "onnx", "ml_dtypes")  # they evaluate constants


class _DamagedError(Exception):
    """The bytes of a library in the cache are not those that were put there."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A library that exists: the digest and size of its bytes, and what its compile reported.

    `externals` has the digest of each file of external data, by its name in the model.
    """

    sha256: str
    bytes: int
    externals: Mapping[str, str]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FinishedLibraries:
    """The libraries kept under `root`; none that is larger than `limit` bytes."""

    root: Path
    limit: int

    def find(self, key: str) -> Finished | None:
        """What was made for `key`; None where nothing was, or where its record is damaged."""
        try:
            document = json.loads(self._record(key).read_bytes())
            content = document["content"]
            if document["version"] != RECORD_VERSION or document["digest"] != _digest(content):
                return None
            touch(self._record(key))
            return Finished(content["sha256"], content["bytes"], content["externals"], content["facts"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def take(self, found: Finished, output: Path) -> bool:
        """Copy a library to `output` in one step, verified; False where it is gone or damaged.

        Raises HostError when `output` cannot be written.
        """
        kept = self._library(found.sha256)
        try:
            with kept.open("rb") as source, stream_atomic(output, executable=True) as stream:
                _check(_copy(source, stream), found.sha256)
        except _DamagedError:
            disk.remove(kept)
            return False
        except FileNotFoundError:
            return False
        touch(kept)
        return True

    def keep(self, key: str, library: Path, externals: Mapping[str, str], facts: Mapping[str, Any]) -> None:
        """Remember a finished library for `key`.

        Raises HostError when the cache cannot be written. A library larger than the cache is not kept.
        """
        size = library.stat().st_size
        if size > self.limit:
            return
        digest = sha256_file(library)
        copy_atomic(library, self._library(digest))
        content = {"sha256": digest, "bytes": size, "externals": dict(externals), "facts": dict(facts)}
        document = {"version": RECORD_VERSION, "digest": _digest(content), "content": content}
        write_atomic(self._record(key), json.dumps(document))

    def _record(self, key: str) -> Path:
        return self.root / f"{key}.json"

    def _library(self, digest: str) -> Path:
        return self.root / f"{digest}.so"


def finished_key(model_sha256: str, *parts: object) -> str:
    """The key of a model compiled as `parts` say: plain values, containers, arrays and records of them."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _DEPENDENCIES]
    return content_key(
        "finished",
        model_sha256,
        package_digest(),
        platform.python_version(),
        *versions,
        *(_canonical(part) for part in parts),
    )


def package_digest(root: Path = PACKAGE) -> str:
    """One digest over every file of the compiler itself."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    parts = (part for path in files for part in (path.relative_to(root).as_posix(), path.read_bytes()))
    return content_key("package", *parts)


def externals_match(found: Finished, digest: Callable[[str], str]) -> bool:
    """Whether the files of external data are still those that the library was made of."""
    try:
        return all(digest(name) == wanted for name, wanted in found.externals.items())
    except TkError:  # whatever is wrong with a file now: the importer says it best
        return False


def _canonical(value: Any) -> str:
    """A text that is the same for equal values only, in every process."""
    if is_dataclass(value):
        inner = (f"{item.name}={_canonical(getattr(value, item.name))}" for item in fields(value))
        return f"{type(value).__name__}({','.join(inner)})"
    if isinstance(value, Mapping):
        return _joined("map", (f"{_canonical(k)}:{_canonical(v)}" for k, v in value.items()), ordered=False)
    if isinstance(value, frozenset | set):
        return _joined("set", map(_canonical, value), ordered=False)
    if isinstance(value, list | tuple):
        return _joined("list", map(_canonical, value), ordered=True)
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return f"array({value.dtype},{value.shape},{value.tobytes().hex()})"
    return repr(value)


def _joined(kind: str, parts: Iterable[str], *, ordered: bool) -> str:
    return f"{kind}({','.join(parts if ordered else sorted(parts))})"


def _digest(content: Mapping[str, Any]) -> str:
    return content_key("record", json.dumps(content, sort_keys=True))


def _check(digest: str, wanted: str) -> None:
    if digest != wanted:
        raise _DamagedError


def _copy(source: BinaryIO, stream: BinaryIO) -> str:
    """Copy a file; returns the SHA-256 of its bytes."""
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
        stream.write(chunk)
    return digest.hexdigest()
