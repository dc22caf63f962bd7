"""Samples of a batch told apart by experiment, where their loops do not show it.

In memory a batch may lie anywhere: behind so many elements of each sample that follow one another (`Runs`).
Reshapes keep that, transposes move it; so that it needs no dimension of its own. Each operator is tried with
random samples: it has to do with each of them what it does in the model of one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate
from operator import mul

import numpy as np

from compiler.graph.dtypes import Array
from compiler.graph.ir import Graph, Node, Shape, Value
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.fold_constants import fold_constants
from compiler.graph.rewrites.sizes.instances import FixedSizeError, Instance, Instances
from compiler.graph.rewrites.sizes.restriction import INTEGERS, SHIFTS, applied, close, random_array
from compiler.graph.samples import NotSeparateError

Runs = int | None
"""How many elements of a sample lie together, those of the next behind them; None: all samples share it."""


COUNTS = (2, 3, 129, 1)
"""How many samples to import a model for; the third is for types alone: some may stop to grow."""


def try_samples(graphs: Sequence[Graph]) -> None:
    """Raise NotSeparateError unless a model was seen to do with each of several samples what it does alone.

    graphs: the model for each of COUNTS.
    """
    folded = [drop_dead(fold_constants(graph)) for graph in graphs]
    try:
        two, three, many, one = Instances(folded, [(count,) for count in COUNTS]).all
    except FixedSizeError as error:
        raise NotSeparateError(str(error)) from error
    for several in (two, three):
        _Batched(several, one).run()
    for number, value in one.values.items():
        shapes = [item.type_of(number).shape for item in (one, two, many)]
        if len({len(shape) for shape in shapes}) > 1 or not all(map(_grows, *shapes)):
            raise NotSeparateError(
                f"{value.name or value} is {shapes[2]} for {COUNTS[2]} and {shapes[0]} for one"
            )


def _grows(one: int, two: int, many: int) -> bool:
    """Whether an extent grows by as much with each sample."""
    return many - one == (COUNTS[2] - 1) * (two - one)


class _Batched:
    """A model for several samples beside that for one, and how samples lie in each of its tensors."""

    def __init__(self, several: Instance, one: Instance) -> None:
        self.several, self.one = several, one
        (self.count,) = several.point
        self.runs: dict[int, Runs] = {}
        self._found: dict[Hashable, tuple[Runs, ...]] = {}

    def run(self) -> None:
        for value in self.one.graph.inputs:
            self.runs[value.id] = self._end(value, "input")
        for value, array in self.one.graph.constants.items():
            self.runs[value.id] = self._constant(value, array)
        for pair in zip(self.several.graph.nodes, self.one.graph.nodes, strict=True):
            self._node(*pair)
        for value in self.one.graph.outputs:
            if self.runs[value.id] != self._end(value, "output"):
                raise NotSeparateError(f"output {value.name!r} is not of one sample after the other")

    def _end(self, value: Value, what: str) -> int:
        """Samples of inputs and outputs lie one behind the other along the first dimension."""
        one, several = value.type, self.several.type_of(value.id)
        if one.dtype.bits % 8:
            raise NotSeparateError(f"{what} {value.name!r} has elements that are no bytes")
        if not one.rank or one.shape[0] != 1 or several.shape != (self.count, *one.shape[1:]):
            raise NotSeparateError(f"{what} {value.name!r} is {several} for {self.count} and {one} for one")
        return one.size

    def _constant(self, value: Value, array: Array) -> Runs:
        """Shared, or a copy for each sample."""
        whole = self.several.constants[value.id]
        if whole.shape == array.shape and whole.tobytes() == array.tobytes():
            return None
        for runs in _candidates(array.shape, ()):
            copies = _joined([array] * self.count, runs, whole.shape)
            if copies is not None and close(whole, copies):  # folded products are rounded
                return runs
        raise NotSeparateError(f"a constant ({value.name or value}) depends on the batch")

    def _node(self, several: Node, one: Node) -> None:
        given = [self._given(value) for value in one.inputs]
        key = (
            *(one.op.name, repr(several.attrs), repr(one.attrs)),
            *((value.type, self.runs[value.id]) for node in (several, one) for value in node.inputs),
            *(None if arrays is None else arrays[1].tobytes() for arrays in given),
        )
        if key not in self._found:
            self._found[key] = self._tried(several, one, given)
        self.runs.update(zip((value.id for value in one.outputs), self._found[key], strict=True))

    def _given(self, value: Value) -> tuple[Array, Array] | None:
        """What a constant is for several, and for one."""
        held = self.several.constants, self.one.constants
        return (held[0][value.id], held[1][value.id]) if value.id in held[1] else None

    def _tried(
        self, several: Node, one: Node, given: Sequence[tuple[Array, Array] | None]
    ) -> tuple[Runs, ...]:
        runs = [self.runs[value.id] for value in one.inputs]
        left = [_candidates(value.type.shape, runs) for value in one.outputs]
        for shift in SHIFTS:
            whole, parts = next(
                made
                for numbers in INTEGERS
                if (made := self._results(several, one, runs, given, shift, numbers[shift])) is not None
            )
            for at, array in enumerate(whole):
                left[at] = [item for item in left[at] if _consists(array, [p[at] for p in parts], item)]
        return tuple(self._only(one, found, runs) for found in left)

    def _only(self, node: Node, found: Sequence[int], runs: Sequence[Runs]) -> int:
        name = node.origin[0] if node.origin else str(node.output)
        if not found:
            raise NotSeparateError(f"{name!r} ({node.op.name}) mixes the samples of a batch")
        alike = [item for item in found if item in runs]
        if len(found) > 1 and not alike:
            raise NotSeparateError(f"{name!r} ({node.op.name}) does not show where samples are")
        return (alike or found)[0]

    def _results(
        self,
        several: Node,
        one: Node,
        runs: Sequence[Runs],
        given: Sequence[tuple[Array, Array] | None],
        shift: int,
        integers: Sequence[int],
    ) -> tuple[Sequence[Array], Sequence[Sequence[Array]]] | None:
        """What it makes of all samples, and of each; None where integers are places that there are not."""
        rng = np.random.default_rng(21)
        whole, samples = [], []
        for value, wide, run, known in zip(one.inputs, several.inputs, runs, given, strict=True):
            parts = [
                random_array(value.type, rng, shift, integers) if known is None else known[1]
                for _ in range(self.count)
            ]
            joined = known[0] if known is not None else _joined(parts, run, wide.type.shape)
            assert joined is not None
            whole.append(joined)
            samples.append(parts)
        try:
            with np.errstate(all="ignore"):
                return applied(several, whole), [applied(one, part) for part in zip(*samples, strict=True)]
        except IndexError:
            return None


def _candidates(shape: Shape, others: Sequence[Runs]) -> list[int]:
    """Where samples can begin: within no element, most likely at an axis, or as in other tensors."""
    size = int(np.prod(shape))
    axes = accumulate(reversed(shape), mul, initial=1)
    found = dict.fromkeys((*axes, *(item for item in others if item is not None)))
    return [item for item in found if item and size % item == 0]


def _joined(parts: Sequence[Array], runs: Runs, shape: Shape) -> Array | None:
    """All samples as one tensor; None where it has not as many elements."""
    if runs is None or int(np.prod(shape)) != len(parts) * parts[0].size:
        return None
    return np.stack([part.reshape(-1, runs) for part in parts], axis=1).reshape(shape)


def _consists(whole: Array, parts: Sequence[Array], runs: int) -> bool:
    if whole.size != len(parts) * parts[0].size:
        return False
    rows = whole.reshape(-1, len(parts), runs)
    return all(close(rows[:, at], part.reshape(-1, runs)) for at, part in enumerate(parts))
