"""The way back from a layout, for tests: the compiler itself only ever repacks constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.loops.index_map import IndexMap
from compiler.schedule.repack import Array, repack


def unpack(index_map: IndexMap, array: Array, shape: Sequence[int]) -> Array:
    """The array of shape `shape` that `repack` would turn into `array`; padding is dropped."""
    numbers = repack(index_map, np.arange(np.prod(shape)).reshape(shape), -1)
    made = np.empty(np.prod(shape), array.dtype)
    made[numbers[numbers >= 0]] = array[numbers >= 0]
    return made.reshape(shape)
