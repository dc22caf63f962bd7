"""Samples of a batch told apart by experiment, where their loops do not show it.

In memory a batch may lie anywhere: behind so many elements of each sample that follow one another (`Runs`).
Reshapes keep that, transposes move it; so that it needs no dimension of its own. Each operator is tried with
random samples: it has to do with each of them what it does in the model of one.

Where a model picks something of each sample, as `x[arange(batch), last]`, integers say which sample it is: in
the model of one these are 0 (`numbers`: how much they grow from one sample to the next).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np

from compiler.graph.dtypes import Array
from compiler.graph.ir import Graph, Node, Shape, Value
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.fold_constants import fold_constants
from compiler.graph.rewrites.sizes.instances import FixedSizeError, Instance, Instances
from compiler.graph.rewrites.sizes.restriction import INTEGERS, applied, close, draws, random_array
from compiler.graph.samples import NotSeparateError

Runs = int | None
"""How many elements of a sample lie together, those of the next behind them; None: all samples share it."""


_SMALL = 1 << 12
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


@dataclass(frozen=True, slots=True, eq=False)
class _Samples:
    """Where samples lie in a tensor, and how much integers grow from each to the next."""

    runs: Runs
    numbers: Array | None = None


class _Batched:
    """A model for several samples beside that for one, and how samples lie in each of its tensors."""

    def __init__(self, several: Instance, one: Instance) -> None:
        self.several, self.one = several, one
        (self.count,) = several.point
        self.runs: dict[int, Runs] = {}
        self.numbers: dict[int, Array] = {}
        self._found: dict[Hashable, tuple[_Samples, ...]] = {}

    def run(self) -> None:
        for value in self.one.graph.inputs:
            self.runs[value.id] = self._end(value, "input")
        for value, array in self.one.graph.constants.items():
            self._learn(value, self._constant(value, array))
        for pair in zip(self.several.graph.nodes, self.one.graph.nodes, strict=True):
            self._node(*pair)
        for value in self.one.graph.outputs:
            if self.runs[value.id] != self._end(value, "output") or value.id in self.numbers:
                raise NotSeparateError(f"output {value.name!r} is not of one sample after the other")

    def _end(self, value: Value, what: str) -> int:
        """Samples of inputs and outputs lie one behind the other along the first dimension."""
        one, several = value.type, self.several.type_of(value.id)
        if one.dtype.bits % 8:
            raise NotSeparateError(f"{what} {value.name!r} has elements that are no bytes")
        if not one.rank or one.shape[0] != 1 or several.shape != (self.count, *one.shape[1:]):
            raise NotSeparateError(f"{what} {value.name!r} is {several} for {self.count} and {one} for one")
        return one.size

    def _learn(self, value: Value, found: _Samples) -> None:
        self.runs[value.id] = found.runs
        if found.numbers is not None:
            self.numbers[value.id] = found.numbers

    def _constant(self, value: Value, array: Array) -> _Samples:
        """Shared, or a copy for each sample, or the number of each."""
        whole = self.several.constants[value.id]
        if whole.shape == array.shape and whole.tobytes() == array.tobytes():
            return _Samples(None)
        for runs in _candidates(array.shape, ()):
            found = _seen(whole, [array] * self.count, runs)
            if found is not None:
                return found
        raise NotSeparateError(f"a constant ({value.name or value}) depends on the batch")

    def _node(self, several: Node, one: Node) -> None:
        given = [self._given(value) for value in one.inputs]
        key = (
            *(one.op.name, repr(several.attrs), repr(one.attrs)),
            *((value.type, self.runs[value.id]) for node in (several, one) for value in node.inputs),
            *(_described(value, arrays) for value, arrays in zip(one.inputs, given, strict=True)),
            *(self.numbers[value.id].tobytes() for value in one.inputs if value.id in self.numbers),
        )
        if key not in self._found:
            self._found[key] = self._tried(several, one, given)
        for value, found in zip(one.outputs, self._found[key], strict=True):
            self._learn(value, found)

    def _given(self, value: Value) -> tuple[Array, Array] | None:
        """What a constant is for several, and for one."""
        held = self.several.constants, self.one.constants
        return (held[0][value.id], held[1][value.id]) if value.id in held[1] else None

    def _tried(
        self, several: Node, one: Node, given: Sequence[tuple[Array, Array] | None]
    ) -> tuple[_Samples, ...]:
        runs = [self.runs[value.id] for value in one.inputs]
        trials = []
        for seed, shift in draws(one):
            made = (self._results(several, one, given, seed, shift, numbers[shift]) for numbers in INTEGERS)
            whole, parts = next(filter(None, made), ((), ()))
            trials.append([(array, [part[at] for part in parts]) for at, array in enumerate(whole)])
        rows = zip(*trials, strict=True)
        pairs = list(zip(one.outputs, rows, strict=False))
        found = [
            [seen for item in _candidates(value.type.shape, runs) if (seen := _seen_in_all(row, item))]
            for value, row in pairs
        ]
        return tuple(self._only(one, seen, runs) for seen in found or [[] for _ in one.outputs])

    def _only(self, node: Node, found: Sequence[_Samples], runs: Sequence[Runs]) -> _Samples:
        name = node.origin[0] if node.origin else str(node.output)
        if not found:
            raise NotSeparateError(f"{name!r} ({node.op.name}) mixes the samples of a batch")
        alike = [item for item in found if item.runs in runs]
        if len(found) > 1 and not alike:
            raise NotSeparateError(f"{name!r} ({node.op.name}) does not show where samples are")
        return (alike or found)[0]

    def _results(
        self,
        several: Node,
        one: Node,
        given: Sequence[tuple[Array, Array] | None],
        seed: int,
        shift: int,
        integers: Sequence[int],
    ) -> tuple[Sequence[Array], Sequence[Sequence[Array]]] | None:
        """What it makes of all samples, and of each; None where integers are places that there are not."""
        rng = np.random.default_rng(seed)
        whole, samples = [], []
        for value, wide, known in zip(one.inputs, several.inputs, given, strict=True):
            if known is not None:
                whole.append(known[0])
                samples.append([known[1]] * self.count)
                continue
            parts = [random_array(value.type, rng, shift, integers) for _ in range(self.count)]
            grown = self.numbers.get(value.id)
            if grown is not None:
                parts = [np.where(grown, 0, part).astype(part.dtype) for part in parts]
            all_of = [part if grown is None else part + at * grown for at, part in enumerate(parts)]
            whole.append(_joined(all_of, self.runs[value.id], wide.type.shape))
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


def _described(value: Value, arrays: tuple[Array, Array] | None) -> Hashable:
    """What an experiment depends on; large constants are not compared."""
    if arrays is None:
        return None
    return arrays[1].tobytes() if arrays[1].nbytes <= _SMALL else value.id


def _joined(parts: Sequence[Array], runs: Runs, shape: Shape) -> Array:
    """All samples as one tensor."""
    assert runs is not None
    return np.stack([part.reshape(-1, runs) for part in parts], axis=1).reshape(shape)


def _seen_in_all(trials: Sequence[tuple[Array, Sequence[Array]]], runs: int) -> _Samples | None:
    """How samples lie, where it is the same in all trials."""
    found = [_seen(whole, parts, runs) for whole, parts in trials]
    first = found[0] if found else None
    grown = {None if item is None or item.numbers is None else item.numbers.tobytes() for item in found}
    return first if None not in found and len(grown) == 1 else None


def _seen(whole: Array, parts: Sequence[Array], runs: int) -> _Samples | None:
    """What shows that a tensor consists of these samples; None where it does not."""
    if whole.size != len(parts) * parts[0].size:
        return None
    rows = whole.reshape(-1, len(parts), runs)
    pairs = [(rows[:, at], part.reshape(-1, runs)) for at, part in enumerate(parts)]
    if all(close(a, b) for a, b in pairs):  # folded products are rounded
        return _Samples(runs)
    if whole.dtype.kind not in "iu":
        return None
    differences = [a.astype(np.int64) - b.astype(np.int64) for a, b in pairs]
    grown = differences[1]
    alike = all(np.array_equal(item, at * grown) for at, item in enumerate(differences))
    if not alike or any(part[grown != 0].any() for _, part in pairs):
        return None
    return _Samples(runs, grown.reshape(parts[0].shape))
