"""Random graphs: a seed gives a model, its inputs and what it is compiled with, always the same."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz import (
    steps_composed,
    steps_elementwise,
    steps_images,
    steps_learned,
    steps_lengths,
    steps_microsoft,
    steps_moving,
    steps_special,
    steps_sums,
)
from tests.fuzz.grow import (
    BF16,
    BOOL,
    DIMS,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LONGEST,
    MOST_ELEMENTS,
    RUNS,
    SMALL,
    U8,
    U32,
    Array,
    Pool,
    Profile,
    Step,
    code,
)
from tests.fuzz.oracle import runs_at_all

TOGETHER = 20
"""Seeds with one profile, whose graphs are compiled side by side."""
FREE, LENGTH = "N", "T"
OPSETS = (11, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24)
_IR = 10
_TYPES = (
    (F32,), (F32,), (F32, F32, I64), (F32, I32, I64, BOOL), (F32, F64, I64), (F64, I32),
    (I64, I32, U8, I8, F32, BOOL), (F16, F32), (BF16, F32), (F32, F16, BF16, F64, I16, U32), (F32, *SMALL),
)  # fmt: skip
_ARCHS = ("host", "host", "host", "x86-64-v3", "x86-64-v2", "x86-64")
_FAMILIES = (
    *((steps_elementwise.STEPS,) * 4), *((steps_moving.STEPS,) * 3), *((steps_sums.STEPS,) * 3),
    *((steps_images.STEPS,) * 2), steps_composed.STEPS, steps_special.STEPS, steps_learned.STEPS,
    steps_microsoft.STEPS,
)  # fmt: skip
_OF_LENGTHS = (*_FAMILIES, *((steps_lengths.STEPS,) * 4))
_LENGTHS = (7, 8, 12, 16, 20, 28, LONGEST)
_SHORTER = (1, 2, 3)
_ATTEMPTS = 60
_CHANGED = ("values", "inputs", "constants", "nodes", "made", "read", "long")
"""What a step changes of a pool."""


@dataclass(frozen=True)
class FuzzGraph:
    """A model and what it is given in each of several runs."""

    seed: int
    profile: Profile
    proto: onnx.ModelProto
    feeds: Sequence[dict[str, Array]]

    @property
    def operators(self) -> set[str]:
        return {node.op_type for node in self.proto.graph.node}


@cache
def profile_of(block: int) -> Profile:
    """What the graphs of a block of seeds have in common."""
    rng = np.random.default_rng([block, 0x70])
    types = _TYPES[int(rng.integers(len(_TYPES)))]
    newest = OPSETS[7:] if types[-1] in SMALL else OPSETS[1:] if BF16 in types else OPSETS
    least = int(rng.choice((1, _LENGTHS[0])))
    lengths = (*_SHORTER, *_LENGTHS) if least == 1 else _LENGTHS
    return Profile(
        opset=int(rng.choice(newest)),
        types=types,
        free=bool(rng.random() < 0.25),
        batches=tuple(int(n) for n in rng.choice((1, 2, 3, 5, 8), RUNS, replace=False)),
        arch=str(rng.choice(_ARCHS)),
        lengths=tuple(int(n) for n in rng.choice(lengths, RUNS * int(rng.random() < 0.25), replace=False)),
        least=least,
    )


def graph_of(seed: int) -> FuzzGraph:
    """The graph of a seed."""
    profile = profile_of(seed // TOGETHER)
    g = Pool(np.random.default_rng([seed, 0x67]), profile, f"g{seed}_")
    g.whole = not (profile.free or profile.lengths) and profile.opset >= 13 and g.chance(0.2)
    for _ in range(g.integer(1, 3)):
        _give(g)
    wanted = g.integer(1, 14)
    for _ in range(_ATTEMPTS):
        if len(g.nodes) >= wanted:
            break
        _take(g, g.pick(*g.pick(*(_OF_LENGTHS if profile.lengths else _FAMILIES))))
    if not g.nodes:
        g.add("Identity", [g.values[0]], g.values[0].shape, g.values[0])
    return FuzzGraph(seed, profile, _proto(g), _feeds(g))


def _take(g: Pool, step: Step) -> None:
    """A step; it is taken back where it does not fit all lengths, as with the longest one in a constant."""
    if not g.profile.lengths:
        step(g)
        return
    kept = {name: copy(getattr(g, name)) for name in _CHANGED}
    step(g)
    if len(g.nodes) > len(kept["nodes"]) and not runs_at_all(_proto(g), _feeds_of_lengths(g)):
        for name, value in kept.items():
            setattr(g, name, value)


def _give(g: Pool) -> None:
    rank = g.pick(1, 2, 2, 3, 3, 4, 4, 5) if g.first else g.pick(0, 1, 2, 2, 3, 3, 4, 4, 5)
    shape = [g.dim() for _ in range(rank)]
    if g.first:
        shape = [1, *shape[1:]]
    elif rank and g.chance(0.03):
        shape[g.integer(0, rank - 1)] = 0
    while np.prod(shape) > MOST_ELEMENTS / 4:
        at = int(np.argmax(shape))
        shape[at] = int(g.pick(*(n for n in DIMS if n < shape[at])))
    kind = g.pick(*g.profile.types)
    g.give(kind, tuple(shape))


def has_length(graph: FuzzGraph) -> bool:
    """Whether an axis beside the batch is left open."""
    shapes = (one.type.tensor_type.shape for one in graph.proto.graph.input)
    return any(dim.dim_param == LENGTH for shape in shapes for dim in shape.dim)


def _proto(g: Pool) -> onnx.ModelProto:
    """The model: what nobody reads is an output, and some of what somebody does."""
    loose = [one for one in g.made if one.name not in g.read]
    middle = [one for one in g.made if one.name in g.read and g.chance(0.15)]
    by_node = {name for node in g.nodes for name in node.input}
    used = {**g.constants}
    inputs = [
        helper.make_tensor_value_info(name, code(runs[0].dtype), _shape(g, name, runs[0]))
        for name, runs in g.inputs.items()
    ]
    graph = helper.make_graph(
        g.nodes,
        f"graph {g.prefix}",
        inputs,
        [_info(g, one.name) for one in (*middle, *loose)],
        [numpy_helper.from_array(array, name) for name, array in used.items() if name in by_node | g.read],
        value_info=[_info(g, one.name) for one in g.made],
    )
    versions = [("", g.profile.opset), (steps_learned.ML, 3), (steps_microsoft.MICROSOFT, 1)]
    opsets = [helper.make_opsetid(*one) for one in versions]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR)


def _shape(g: Pool, name: str, array: Array) -> list[int | str]:
    shape: list[int | str] = list(array.shape)
    if g.profile.free:
        shape[0] = FREE
    if name in g.long:
        shape[g.long[name]] = LENGTH
    return shape


def _info(g: Pool, name: str) -> onnx.ValueInfoProto:
    one = next(one for one in g.made if one.name == name)
    if not g.whole:
        return helper.make_tensor_value_info(name, code(one.dtype), None)
    return helper.make_tensor_value_info(name, code(one.dtype), one.shape)


def _feeds_of_lengths(g: Pool) -> list[dict[str, Array]]:
    """Inputs at the least length, at the longest and in between."""
    return [
        {name: _resized(runs[0], g.long.get(name), length) for name, runs in g.inputs.items()}
        for length in (g.profile.least, 12, LONGEST)
    ]


def _resized(array: Array, axis: int | None, length: int) -> Array:
    return array if axis is None else np.take(array, np.arange(length) % array.shape[axis], axis)


def _feeds(g: Pool) -> list[dict[str, Array]]:
    return [{name: runs[number] for name, runs in g.inputs.items()} for number in range(RUNS)]
