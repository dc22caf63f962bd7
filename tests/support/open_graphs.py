"""Graphs written by hand whose extents a run decides, as libraries, and what they compute by numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np

from compiler import pipeline
from compiler.core.types import F32, I64
from compiler.graph.edit import Editor
from compiler.graph.ir import Batch, Extent, Graph, Symbol, TensorType, Value, verify
from compiler.reports import CompileOptions
from compiler.stages.job import CompileJob
from compiler.stages.specialised import Imported

Array = np.ndarray
Axis = int | Extent | None
"""The largest extent where it varies, else the extent."""


@dataclass
class OpenSketch:
    """A graph under construction: tensors by name, and how much of each a run has."""

    symbols: tuple[Symbol, ...]
    editor: Editor = field(default_factory=Editor)
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    extents: dict[Value, tuple[Extent | None, ...]] = field(default_factory=dict)
    sizes: list[Value] = field(default_factory=list)

    def alone(self, number: int) -> Extent:
        """The extent that is one symbol and nothing else."""
        return Extent(tuple(int(number == one) for one in range(len(self.symbols))))

    def bound(self, axis: int | Extent) -> int:
        """The largest extent of an axis."""
        return axis if isinstance(axis, int) else axis.of([one.maximum for one in self.symbols])

    def input(self, name: str, *axes: int | Extent, dtype: object = F32) -> Value:
        """An input; axes that vary are given as extents."""
        made = self.editor.value(TensorType(dtype, tuple(map(self.bound, axes))), name)  # type: ignore[arg-type]
        self.inputs[name] = made
        self._note(made, axes)
        return made

    def output(self, name: str, value: Value, *axes: int | Extent) -> None:
        """An output with these axes."""
        self.outputs[name] = value
        self._note(value, axes)

    def size(self, number: int) -> Value:
        """The hidden input that holds the value of a symbol; in order."""
        assert number == len(self.sizes)
        self.sizes.append(self.editor.value(TensorType(I64, ())))
        return self.sizes[-1]

    def _note(self, value: Value, axes: Sequence[int | Extent]) -> None:
        if any(isinstance(axis, Extent) for axis in axes):
            self.extents[value] = tuple(axis if isinstance(axis, Extent) else None for axis in axes)

    def graph(self, batch: Batch | None = None) -> Graph:
        """All of it, checked."""
        made = Graph(
            inputs=(*self.inputs.values(), *self.sizes),
            outputs=tuple(self.outputs.values()),
            nodes=tuple(self.editor.nodes),
            constants=self.editor.constants,
            input_names=(*self.inputs, *(f"size of {number}" for number in range(len(self.sizes)))),
            output_names=tuple(self.outputs),
            batch=batch,
            symbols=self.symbols,
            extents=self.extents,
            sizes=len(self.sizes),
        )
        verify(made)
        return made


Wanted = Callable[[Mapping[str, Array]], dict[str, Array]]


def compiled(graph: Graph, path: Path, target: str = "cpu", model: Path | None = None) -> Path:
    """The library of a graph, which stands for what the import of `model` would make."""
    if model is None:
        model = path.with_suffix(".onnx")
        model.write_bytes(b"no model: the graph was written by hand")
    job = CompileJob.of(model, CompileOptions(output=path, target=target))
    with patch.object(pipeline, "import_for_job", lambda _: Imported(graph)):
        pipeline.run_job(job)
    return path


# ---------------------------------------------------------------- two graphs that have all there is

ROWS, PAST = Symbol("rows", 1, 7), Symbol("past", 0, 5)


def everything() -> Graph:
    """Varying axes at the first, middle and last place, two at once, and extents that follow from others."""
    s = OpenSketch((ROWS, PAST))
    rows, past = s.alone(0), s.alone(1)
    emit = s.editor.emit
    s.output("first", emit("Neg", s.input("a", rows, 5)), rows, 5)
    s.output("middle", emit("Neg", s.input("b", 2, rows, 3)), 2, rows, 3)
    s.output("last", emit("Neg", s.input("c", 3, 1, past)), 3, 1, past)
    s.output("after ones", emit("Neg", s.input("d", 1, rows, 4)), 1, rows, 4)
    s.output("two", emit("Neg", s.input("e", past, 2, rows)), past, 2, rows)
    s.output("fixed", emit("Neg", s.input("f", 3)), 3)
    line = s.input("line", rows)
    count = s.bound(rows)
    half = emit("Slice", line, begin=(0,), step=(2,), size=((count + 1) // 2,))
    s.output("half", half, Extent((1, 0), 1, 2))
    places = s.editor.constant(np.maximum(np.arange(2 * count + 1) - 1, 0) // 2)
    s.output("twice", emit("Gather", line, places, axis=0), Extent((2, 0), 1))
    _join(s, line, rows, past)
    return s.graph()


def _join(s: OpenSketch, line: Value, rows: Extent, past: Extent) -> None:
    """What was there before and what is new, one behind the other, with a mask as long as both."""
    s.size(0)
    before, mask = s.input("before", past), s.input("mask", Extent((1, 1)), dtype=F32)
    emit, constant = s.editor.emit, s.editor.constant
    count = s.bound(Extent((1, 1)))
    places, kept = constant(np.arange(count)), s.size(1)
    old = emit("Gather", before, constant(np.minimum(np.arange(count), s.bound(past) - 1)), axis=0)
    moved = emit("Max", emit("Sub", places, kept), constant(np.asarray(0)))
    new = emit("Gather", line, emit("Min", moved, constant(np.asarray(s.bound(rows) - 1))), axis=0)
    joined = emit("Where", emit("Less", places, kept), old, new)
    s.output("joined", emit("Mul", joined, mask), Extent((1, 1)))


def everything_wanted(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What `everything` computes."""
    names = {"first": "a", "middle": "b", "last": "c", "after ones": "d", "two": "e", "fixed": "f"}
    line, rows = feeds["line"], feeds["line"].size
    return {
        **{name: -feeds[given] for name, given in names.items()},
        "half": line[::2],
        "twice": line[np.maximum(np.arange(2 * rows + 1) - 1, 0) // 2],
        "joined": np.concatenate([feeds["before"], line]) * feeds["mask"],
    }


def samples() -> Graph:
    """The same with a free batch beside: middle, last, a sum of sizes, all for each sample."""
    s = OpenSketch((ROWS, PAST))
    rows, past = s.alone(0), s.alone(1)
    emit = s.editor.emit
    s.output("middle", emit("Neg", s.input("b", 1, rows, 3)), 1, rows, 3)
    s.output("last", emit("Neg", s.input("c", 1, 3, past)), 1, 3, past)
    s.output("fixed", emit("Neg", s.input("f", 1, 3)), 1, 3)
    size = emit("Cast", s.size(0), to=F32)
    s.output("size", emit("Add", s.input("g", 1, 2), size), 1, 2)
    return s.graph(Batch("N", 100))


def samples_wanted(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What `samples` computes."""
    names = {"middle": "b", "last": "c", "fixed": "f"}
    size = np.float32(feeds["b"].shape[1])
    return {**{name: -feeds[given] for name, given in names.items()}, "size": feeds["g"] + size}


def feeds_of(graph: Graph, values: Sequence[int], count: int = 1, seed: int = 0) -> dict[str, Array]:
    """Inputs of a run with these values of the symbols, and so many samples."""
    generator = np.random.default_rng([seed, count, *values])
    feeds = {}
    for value, name in zip(graph.operands, graph.input_names, strict=False):
        axes = graph.extents.get(value, (None,) * value.type.rank)
        shape = [n if e is None else e.of(values) for n, e in zip(value.type.shape, axes, strict=True)]
        if graph.batch is not None:
            shape[0] = count
        feeds[name] = generator.standard_normal(shape, np.float32)
    return feeds
