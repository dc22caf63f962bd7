"""The constants of a model library: each array once per layout, packed, at aligned offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Value
from compiler.graph.memory import ALIGNMENT
from compiler.graph.to_loops import Derived
from compiler.loops.evaluate import evaluate_func
from compiler.loops.index_map import IndexMap
from compiler.schedule.repack import repack

Maps = tuple[IndexMap, ...]
"""Applied one after the other; empty for row-major."""


@dataclass(slots=True)
class ConstantPool:
    """Collects constants in their layouts and hands out byte offsets; `write` packs them one at a time."""

    bytes: int = 0
    _offsets: dict[Hashable, int] = field(default_factory=dict)
    _places: list[tuple[GraphConstants, Value, Maps]] = field(default_factory=list)

    def place(self, key: Hashable, constants: GraphConstants, value: Value, maps: Maps) -> int:
        """Byte offset of a constant in the layout that `maps` lead to; equal keys have one place."""
        if key not in self._offsets:
            self._offsets[key] = self.bytes
            self._places.append((constants, value, maps))
            shape: tuple[int, ...] = value.type.shape
            for index_map in maps:
                shape = index_map.shape(shape)
            size = int(np.prod(shape, dtype=np.int64)) * to_numpy(value.type.dtype).itemsize
            self.bytes += -(-size // ALIGNMENT) * ALIGNMENT
        return self._offsets[key]

    def write(self, stream: BinaryIO) -> None:
        """Write all constants in order, each padded with zeros to the alignment."""
        for constants, value, maps in self._places:
            array = constants.array(value)
            for index_map in maps:
                array = repack(index_map, array, 0)
            data = np.ascontiguousarray(array)
            if data.size:
                stream.write(data.reshape(-1).view(np.uint8).data)
            stream.write(b"\0" * (-data.nbytes % ALIGNMENT))


@dataclass(slots=True)
class GraphConstants:
    """The constants of one graph in the pool of its library.

    derived: how to compute those that are not among the arrays. by_content: equal ones of several graphs have
    one place; a graph's own are told apart by identity, which is quicker.
    """

    pool: ConstantPool
    arrays: Mapping[Value, Array]
    derived: Mapping[Value, Derived] = field(default_factory=dict)
    by_content: bool = False
    _digests: dict[Value, Hashable] = field(default_factory=dict)

    def offset(self, value: Value, maps: Maps) -> int:
        """Byte offset of a constant in the layout that `maps` lead to."""
        key = self._content(value) if self.by_content else value
        return self.pool.place((key, maps), self, value, maps)

    def array(self, value: Value) -> Array:
        """The elements of a constant, row-major."""
        if value in self.arrays:
            return self.arrays[value]
        made = self.derived[value]
        return evaluate_func(made.func, [self.arrays[item] for item in made.inputs])[0]

    def _content(self, value: Value) -> Hashable:
        """The same for equal constants only."""
        if value not in self.arrays:
            made = self.derived[value]
            return made.func, tuple(map(self._content, made.inputs))
        if value not in self._digests:
            self._digests[value] = value.type, _digest(self.arrays[value])
        return self._digests[value]


def _digest(array: Array) -> bytes:
    """Of the elements alone; one that is repeated all over stands for them all."""
    repeated = bool(array.strides) and not any(array.strides)
    data = np.ascontiguousarray(array.flat[:1] if repeated else array)
    return hashlib.sha256(data.reshape(-1).view(np.uint8).data).digest()
