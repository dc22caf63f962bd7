"""Model libraries that say they are for any target, and run on host cores."""

from __future__ import annotations

import shutil
from pathlib import Path

from compiler.core.cache import ContentCache
from tests.support.model_library import Builder

_WIDTH = 40
_BLANK = f'"{"x" * _WIDTH}"'.encode()


def build_blank(directory: Path, cache: Path) -> Path:
    """A library whose manifest has room for the name of a target."""
    cxx = shutil.which("g++") or shutil.which("clang++") or "c++"
    builder = Builder(cxx, ContentCache(cache / "objects"), directory)
    manifest = b'{"flops": 3, "kernels": [], "target": ' + _BLANK + b"}"
    return builder.library(directory / "blank.so", "-Wno-missing-field-initializers", manifest=manifest)


def library_for(target: str, blank: Path, path: Path) -> Path:
    """A copy of `blank` at `path` for `target`."""
    data = blank.read_bytes()
    assert data.count(_BLANK) == 1
    path.write_bytes(data.replace(_BLANK, f'"{target}"'.encode().ljust(len(_BLANK))))
    return path
