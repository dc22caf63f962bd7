"""What a reduction keeps on disk: arrays and results by content, and the constants of the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from compiler.core.files import stream_atomic, write_atomic
from compiler.runtime.tensors import Array, numpy_dtype

CONSTANTS = "constants.bin"
"""The file beside every model that is tried, which its large constants lie in."""

_STORED_AS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class ReductionStore:
    """A directory; whoever writes the same twice writes the same bytes."""

    root: Path

    def put(self, array: Array) -> str:
        """Keep an array; returns its name, which says its type and content."""
        plain = np.ascontiguousarray(array).reshape(array.shape)
        digest = hashlib.sha256(repr(plain.shape).encode())
        digest.update(plain.reshape(-1).view(np.uint8).data if plain.size else b"")
        name = f"{digest.hexdigest()[:32]}-{plain.dtype.name}"
        path = self._array(name)
        if not path.exists():
            with stream_atomic(path) as stream:
                np.save(stream, _native(plain), allow_pickle=False)
        return name

    def get(self, name: str) -> Array:
        """An array that was kept, mapped from its file."""
        dtype = numpy_dtype(name.rpartition("-")[2])
        loaded = np.load(self._array(name), mmap_mode="r", allow_pickle=False)
        array: Array = loaded if loaded.dtype == dtype else loaded.view(dtype)
        return array

    def note(self, kind: str, key: str, value: object) -> None:
        """Keep what was found out about `key`."""
        write_atomic(self.root / kind / f"{key}.json", json.dumps(value))

    def noted(self, kind: str, key: str) -> Any:
        """What was kept about `key`; None where nothing was, or where it is damaged."""
        try:
            return json.loads((self.root / kind / f"{key}.json").read_bytes())
        except (OSError, ValueError):
            return None

    @contextmanager
    def writing_constants(self) -> Iterator[BinaryIO]:
        """The file of constants, which is there when all of it is written."""
        with stream_atomic(self.root / CONSTANTS) as stream:
            yield stream

    def _array(self, name: str) -> Path:
        return self.root / "arrays" / f"{name}.npy"


def _native(array: Array) -> Array:
    """As a type that numpy itself can write."""
    return array if array.dtype.isbuiltin == 1 else array.view(_STORED_AS[array.dtype.itemsize])
