"""The constants of a model library: each array once per layout, packed, at aligned offsets."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Collects (tensor, index maps) pairs and hands out byte offsets; `write` packs them one at a time.

    derived: how to compute those that are not among the arrays.
    """

    arrays: Mapping[Value, Array]
    derived: Mapping[Value, Derived] = field(default_factory=dict)
    bytes: int = 0
    _offsets: dict[tuple[Value, Maps], int] = field(default_factory=dict)

    def offset(self, value: Value, maps: Maps) -> int:
        """Byte offset of a constant in the layout that `maps` lead to."""
        key = (value, maps)
        if key not in self._offsets:
            self._offsets[key] = self.bytes
            shape: tuple[int, ...] = value.type.shape
            for index_map in maps:
                shape = index_map.shape(shape)
            size = int(np.prod(shape, dtype=np.int64)) * to_numpy(value.type.dtype).itemsize
            self.bytes += -(-size // ALIGNMENT) * ALIGNMENT
        return self._offsets[key]

    def write(self, stream: BinaryIO) -> None:
        """Write all constants in order, each padded with zeros to the alignment."""
        for value, maps in self._offsets:
            array = self._array(value)
            for index_map in maps:
                array = repack(index_map, array, 0)
            data = np.ascontiguousarray(array)
            if data.size:
                stream.write(data.reshape(-1).view(np.uint8).data)
            stream.write(b"\0" * (-data.nbytes % ALIGNMENT))

    def _array(self, value: Value) -> Array:
        if value in self.arrays:
            return self.arrays[value]
        made = self.derived[value]
        return evaluate_func(made.func, [self.arrays[item] for item in made.inputs])[0]
