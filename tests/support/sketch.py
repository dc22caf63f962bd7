"""Graphs written by hand, their groups as loop functions, and the numbers that they should give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from compiler.core.target import TargetFacts
from compiler.core.types import F32
from compiler.graph.choose_layouts import choose_layouts
from compiler.graph.edit import Editor
from compiler.graph.fuse import FusedGraph, FusionOptions, fuse
from compiler.graph.ir import Graph, TensorType, Value, verify
from compiler.graph.ops.windows import Windows
from compiler.graph.to_loops import GroupFunc
from compiler.loops.ir import Func
from compiler.loops.layout import Layout
from compiler.stages.layout_costs import TargetLayoutCosts
from tests.support.group_functions import group_func

Array = np.ndarray[Any, Any]
Work = tuple[Func, Mapping[str, Layout]]
"""A loop function to schedule, and the layouts of its parameters that are not row-major."""

NARROW = TargetFacts("test", "c++", "narrow", vector_bits=128, vector_registers=16)
"""Four lanes: small shapes have several vectors, tails and padding."""


class Sketch(Editor):
    """A graph written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Value] = []

    def input(self, *shape: int) -> Value:
        self.inputs.append(self.value(TensorType(F32, shape)))
        return self.inputs[-1]

    def weights(self, *shape: int) -> Value:
        """Ones: tests of structure do not care."""
        return self.constant(np.ones(shape, np.float32))

    def conv(
        self, x: Value, outer: int = 4, size: int = 1, *, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> Value:
        """A convolution without padding."""
        axes = x.type.rank - 2
        windows = Windows((size,) * axes, (stride,) * axes, (dilation,) * axes, (0,) * axes, (0,) * axes)
        weights = self.weights(outer, x.type.shape[1] // groups, *windows.kernel)
        return self.emit("Conv", x, weights, group=groups, **windows.attrs())

    def pool(self, x: Value, size: int, stride: int, op: str = "SumPool") -> Value:
        axes = x.type.rank - 2
        windows = Windows((size,) * axes, (stride,) * axes, (1,) * axes, (0,) * axes, (0,) * axes)
        return self.emit(op, x, **windows.attrs())

    def pad(self, x: Value, before: int = 1, after: int = 1) -> Value:
        edges = {"before": (0, 0, before, before), "after": (0, 0, after, after)}
        return self.emit("Pad", x, **edges, mode="constant", value=0.0)  # type: ignore[arg-type]

    def graph(self, *outputs: Value) -> Graph:
        names = tuple(f"y{n}" for n in range(len(outputs)))
        inputs = tuple(self.inputs)
        graph = Graph(
            inputs, outputs, tuple(self.nodes), self.constants, tuple(f"x{v.id}" for v in inputs), names
        )
        verify(graph)
        return graph

    def fused(self, *outputs: Value, options: FusionOptions | None = None) -> FusedGraph:
        return fuse(self.graph(*outputs), options)


def layouts_of(fused: FusedGraph, lanes: int) -> Mapping[Value, Layout]:
    """The layouts that are cheapest on a target with so many lanes."""
    facts = TargetFacts("test", "c++", "lanes", vector_bits=32 * lanes)
    return choose_layouts(fused, TargetLayoutCosts(facts))


def works(fused: FusedGraph, lanes: int = 0, form: str = "") -> Iterator[Work]:
    """The loop function of every group, with the layouts that the graph pass chooses; none with `lanes` 0.

    Anchors take the form called `form` where they have it, else their default.
    """

    def choose(_name: str, candidates: Mapping[str, GroupFunc]) -> str:
        return form if form in candidates else next(iter(candidates))

    layouts = layouts_of(fused, lanes) if lanes else {}
    for group in fused.groups:
        made = group_func(group, fused.graph.constants, choose, threads=bool(form))
        pairs = zip(made.func.params, made.values, strict=True)
        yield made.func, {b.name: layouts[v] for b, v in pairs if v in layouts and layouts[v].maps}
