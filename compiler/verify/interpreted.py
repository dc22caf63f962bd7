"""A kernel's loops run by the interpreter at any stage, with arrays as they are before scheduling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.loops.interp import interpret
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Func
from compiler.loops.queries import static_shape
from compiler.runtime.tensors import Array
from compiler.schedule.layout_changes import layouts_of
from compiler.schedule.repack import repack, unpack

_POISON = 85


def pack_inputs(func: Func, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs in the layouts that the schedule chose; padding whose content does not matter is NaN."""
    packed = {}
    for name, given in inputs.items():
        array = given
        for layout in layouts_of(func, name):
            array = repack(layout.index_map, array, np.nan if layout.pad is None else layout.pad)
        packed[name] = array
    return packed


def unpack_outputs(func: Func, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs in their shapes, layouts undone."""
    done = {}
    for name, flat in outputs.items():
        array = flat.reshape(static_shape(func.buffer(name)))
        for layout in reversed(layouts_of(func, name)):
            array = unpack(layout.index_map, array, layout.shape)
        done[name] = array
    return done


def run_scheduled(
    scheduled: Func, inputs: Mapping[str, Array], shuffle: int | None = None, *, races: bool = False
) -> dict[str, Array]:
    """Run a scheduled Func; `races` watches memory."""
    packed = pack_inputs(scheduled, inputs)
    return unpack_outputs(scheduled, interpret(scheduled, packed, shuffle=shuffle, races=races))


def run_flat(
    scheduled: Func,
    lowered: Func,
    inputs: Mapping[str, Array],
    shuffle: int | None = None,
    *,
    subgroup: int = 32,
) -> dict[str, Array]:
    """Run what a lowering pass made of `scheduled`; workspace is poisoned, but for counters."""
    given = pack_inputs(scheduled, inputs)
    for item in lowered.workspace:
        if item in lowered.counters:
            continue
        kind = np.dtype(STORAGE[item.dtype.name])
        given[item.name] = np.full(static_shape(item), np.nan if kind.kind == "f" else _POISON, kind)
    return unpack_outputs(scheduled, interpret(lowered, given, shuffle=shuffle, subgroup=subgroup))
