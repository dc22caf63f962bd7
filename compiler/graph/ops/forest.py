"""Ours: what an ensemble of trees says of each row, by tables in which every step of a walk is arithmetic.

Both ways on from a node lie side by side, so that a step is one addition and no branch: processors overlap
the walks of several rows. Trees with as many levels are walked by one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.core.types import INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import NodeInfo, TensorType, Value
from compiler.graph.op import Emitter, Form, InvalidError, Kind, Op, Types
from compiler.loops.build import Builder, region_at
from compiler.loops.ir import (
    Binary,
    Buffer,
    Cast,
    Expr,
    Region,
    Stmt,
    Store,
    Unary,
    Var,
    const,
    seq,
)

# ---------------------------------------------------------------- trees as they are given


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees as tables by node: nodes of all trees are numbered through.

    yes, no: where a row goes on whose feature fits the threshold, or does not; a leaf's are itself. missing:
    whether NaN fits. weights: (nodes, targets). given: of which targets a leaf says something. modes: which
    comparison, by node.
    """

    roots: Array
    features: Array
    thresholds: Array
    yes: Array
    no: Array
    missing: Array
    modes: Array
    weights: Array
    given: Array

    @property
    def is_leaf(self) -> Array:
        """Whether nothing follows a node."""
        return np.asarray((self.yes == np.arange(self.yes.size)) & (self.no == self.yes))


_OPPOSITES = {"BRANCH_GT": "BRANCH_LEQ", "BRANCH_GTE": "BRANCH_LT", "BRANCH_NEQ": "BRANCH_EQ"}
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_EQ", *_OPPOSITES)
"""The comparisons of nodes."""


def _two_comparisons(forest: Forest) -> Forest:
    """The same with LEQ and LT alone: others are their opposites, or one after the other."""
    modes, yes, no, missing = (
        np.array(item) for item in (forest.modes, forest.yes, forest.no, forest.missing)
    )
    for mode, opposite in _OPPOSITES.items():
        at = modes == mode
        yes[at], no[at], modes[at] = no[at], yes[at], opposite
        missing[at] = (mode != "BRANCH_NEQ") & ~missing[at]  # what is no number differs from all numbers
    both = np.flatnonzero(modes == "BRANCH_EQ")
    below = modes.size + np.arange(both.size)  # x <= t, and then not x < t
    modes[both] = "BRANCH_LEQ"
    ends = yes[both], no[both]
    yes[both] = below
    return Forest(
        forest.roots,
        np.append(forest.features, forest.features[both]),
        np.append(forest.thresholds, forest.thresholds[both]),
        np.append(yes, ends[1]),
        np.append(no, ends[0]),
        np.append(missing, np.zeros(both.size, bool)),
        np.append(modes, np.full(both.size, "BRANCH_LT")),
        np.concatenate([forest.weights, forest.weights[both]]),
        np.concatenate([forest.given, forest.given[both]]),
    )


def heights(forest: Forest) -> Array:
    """Levels below each node; raises InvalidError where a walk never ends."""
    leaf, height = forest.is_leaf, np.zeros(forest.yes.size, np.int64)
    for _ in range(leaf.size + 1):
        after = np.where(leaf, 0, 1 + np.maximum(height[forest.yes], height[forest.no]))
        if np.array_equal(after, height):
            return height
        height = after
    raise InvalidError("the nodes of a tree lead to themselves")


# ---------------------------------------------------------------- trees as they are walked


@dataclass(frozen=True, slots=True)
class Walks:
    """Tables by record: a tree's first one is its number, a step leads to `below` or to the one behind it.

    strict: whether the feature must be less than the threshold, not just no more; None where all are alike,
    which `all_strict` says. missing: whether NaN fits; None where it never does. runs: how many trees have
    how many levels, in order.
    """

    features: Array
    thresholds: Array
    below: Array
    weights: Array
    strict: Array | None
    missing: Array | None
    all_strict: bool
    runs: tuple[tuple[int, int], ...]


def walks(given: Forest) -> Walks:
    """The tables of a forest; raises InvalidError where a walk never ends."""
    forest = _two_comparisons(given)
    levels = heights(forest)
    roots = forest.roots[np.argsort(levels[forest.roots], kind="stable")]
    source, below = _records(forest, roots, levels[roots])
    inner = ~forest.is_leaf
    strict, missing = (forest.modes == "BRANCH_LT")[source], forest.missing[source]
    counts = np.unique(levels[roots], return_counts=True)
    used = strict[inner[source]]
    return Walks(
        forest.features[source].astype(np.int32),
        forest.thresholds[source],
        below.astype(np.int32),
        forest.weights[source],
        strict if used.any() and not used.all() else None,
        missing if missing[inner[source]].any() else None,
        bool(used.any() and used.all()),
        tuple((int(count), int(level)) for level, count in zip(*counts, strict=True)),
    )


def _records(forest: Forest, roots: Array, levels: Array) -> tuple[Array, Array]:
    """The node that each record is of, and where its pair begins: roots first, then tree by tree.

    A leaf that is reached early has a pair of copies, which lead to themselves.
    """
    pairs = np.full(forest.yes.size, -1)
    sources, trees = [roots], [np.arange(roots.size)]
    now, tree, count, level = roots, np.arange(roots.size), roots.size, 0
    while now.size:
        open_ends = (pairs[now] < 0) & (level < levels[tree])
        new, first = np.unique(now[open_ends], return_index=True)
        owners = tree[open_ends][first]
        pairs[new] = count + 2 * np.arange(new.size)
        now = np.stack([forest.yes[new], forest.no[new]], axis=1).reshape(-1)
        tree, count, level = np.repeat(owners, 2), count + now.size, level + 1
        sources.append(now)
        trees.append(tree)
    source = np.concatenate(sources)
    order = np.argsort(np.concatenate([np.full(roots.size, -1), *trees[1:]]), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    below = np.maximum(pairs[source], 0)
    return source[order], place[below[order]]


# ---------------------------------------------------------------- the operator

_OPERANDS = ("features", "thresholds", "below", "weights", "strict", "missing")
_COMBINE: Mapping[str, tuple[str, Callable[..., Array]]] = {
    "sum": ("add", np.add), "min": ("min", np.minimum), "max": ("max", np.maximum),
}  # fmt: skip


def emit_scores(e: Emitter, data: Value, forest: Forest, together: str, base: Sequence[float]) -> Value:
    """(rows, targets): `base` combined with what each tree says of a row of `data`, (rows, features).

    Data and tables are f32 or f64. together: sum, min or max; `base` has a number for each target.
    """
    tables = walks(forest)
    given = {name: table for name in _OPERANDS if (table := getattr(tables, name)) is not None}
    return e.emit(
        "ForestScores", data, *(e.constant(table) for table in given.values()), together=together,
        base=tuple(base), given=tuple(given), all_strict=tables.all_strict,
        counts=tuple(count for count, _ in tables.runs), levels=tuple(level for _, level in tables.runs),
    )  # fmt: skip


def start_of(together: str) -> float:
    """What changes nothing when it is combined."""
    return {"sum": 0.0, "min": np.inf, "max": -np.inf}[together]


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_shape((types[0].shape[0], len(attrs.numbers("base")))),)


def _runs(attrs: Attrs) -> list[tuple[int, int, int]]:
    """First tree, number of trees and levels of each run."""
    counts, levels = attrs.integers("counts"), attrs.integers("levels")
    firsts = np.concatenate([[0], np.cumsum(counts)])
    return [
        (int(first), *both) for first, both in zip(firsts, zip(counts, levels, strict=True), strict=False)
    ]


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, tables = arrays[0], dict(zip(attrs.texts("given"), arrays[1:], strict=True))
    scores = np.tile(np.asarray(attrs.numbers("base"), x.dtype), (x.shape[0], 1))
    rows, combine = np.arange(x.shape[0]), _COMBINE[attrs.text("together")][1]
    for first, count, levels in _runs(attrs):
        for tree in range(first, first + count):
            at = np.full(x.shape[0], tree)
            for _ in range(levels):
                value, threshold = x[rows, tables["features"][at]], tables["thresholds"][at]
                strict = tables["strict"][at] if "strict" in tables else attrs.flag("all_strict")
                fits = np.where(strict, value < threshold, value <= threshold)
                if "missing" in tables:
                    fits |= np.isnan(value) & tables["missing"][at]
                at = tables["below"][at] + ~fits
            scores = combine(scores, tables["weights"][at])
    return (scores,)


_TOGETHER = 8
"""Walks: one alone waits for memory at each step. Measured on Zen 4: 500 trees for one row in 11 us one after
the other, 5.6 us so."""


class _Form:
    """Writes walks."""

    def __init__(self, b: Builder, inputs: Sequence[Buffer], info: NodeInfo, target: Buffer) -> None:
        self.b, self.info, self.target, self.x = b, info, target, inputs[0]
        self.tables = dict(zip(info.attrs.texts("given"), inputs[1:], strict=True))
        self.targets = info.out_types[0].shape[1]

    def begin(self, row: Expr) -> Stmt:
        base = [const(value, self.target.dtype) for value in self.info.attrs.numbers("base")]
        return seq(*(Store(self.target, (row, const(n)), value) for n, value in enumerate(base)))

    def trees(self, run: tuple[int, int, int], row: Expr) -> Stmt:
        """A run of trees on one row."""
        first, count, levels = run
        whole = count // _TOGETHER

        def group(number: Var) -> Stmt:
            begin = number * _TOGETHER + first
            return self.walk([(begin + n, row) for n in range(_TOGETHER)], levels)

        def rest(number: Var) -> Stmt:
            return self.walk([(number + (first + whole * _TOGETHER), row)], levels)

        parts = ((whole, group), (count % _TOGETHER, rest))
        return seq(*(self.b.repeat("tree", extent, part) for extent, part in parts if extent))

    def walk(self, ends: Sequence[tuple[Expr, Expr]], levels: int, done: tuple[Buffer, ...] = ()) -> Stmt:
        """What some trees say, each on a row, level by level together."""
        if len(done) < len(ends):
            return self.b.with_cell("at", INDEX, lambda at: [self.walk(ends, levels, (*done, at))])
        zero = (const(0),)

        def step(at: Buffer, row: Expr) -> Stmt:
            on = Cast(INDEX, Unary("not", self._fits(at[zero], row)))
            return Store(at, zero, Cast(INDEX, self.tables["below"][at[zero]]) + on)

        pairs = list(zip(done, ends, strict=True))
        level = seq(*(step(at, row) for at, (_, row) in pairs))
        return seq(
            *(Store(at, zero, tree) for at, (tree, _) in pairs),
            *([self.b.repeat("level", levels, lambda _: level)] if levels else []),
            *(self._end(at, row) for at, (_, row) in pairs),
        )

    def _fits(self, at: Expr, row: Expr) -> Expr:
        value, threshold = (
            self.x[row, Cast(INDEX, self.tables["features"][at])],
            self.tables["thresholds"][at],
        )
        fits: Expr = value.lt(threshold) if self.info.attrs.flag("all_strict") else value.le(threshold)
        if "strict" in self.tables:
            equal = Binary("and", value.eq(threshold), Unary("not", self.tables["strict"][at]))
            fits = Binary("or", value.lt(threshold), equal)
        if "missing" in self.tables:
            fits = Binary("or", fits, Binary("and", value.ne(value), self.tables["missing"][at]))
        return fits

    def _end(self, at: Buffer, row: Expr) -> Stmt:
        combine = _COMBINE[self.info.attrs.text("together")][0]

        def add(place: Expr) -> Stmt:
            value = Binary(combine, self.target[row, place], self.tables["weights"][at[const(0)], place])
            return Store(self.target, (row, place), value)

        return add(const(0)) if self.targets == 1 else self.b.repeat("target", self.targets, add)

    def touches(self, row: Expr | None, count: int) -> tuple[list[Region], list[Region]]:
        """Of so many rows from one on."""

        def rows(item: Buffer) -> Region:
            begin = const(0) if row is None else row
            return Region(item, (begin, const(0)), (const(count), item.shape[1]))

        return [rows(self.x), *map(region_at, self.tables.values())], [rows(self.target)]


def _by_rows(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """All trees for one row after the other."""
    target = b.local("scores", info.out_types[0].shape, info.out_types[0].dtype)
    form = _Form(b, inputs, info, target)

    def body(row: Var) -> Stmt:
        return seq(form.begin(row), *(form.trees(run, row) for run in _runs(info.attrs)))

    b.perform("walk", info.out_types[0].shape[:1], body, lambda row: form.touches(row, 1))
    return target


_MOST_ROWS = 64
"""Of a block: their features and a tree stay in the first-level cache."""


def _block(rows: int) -> int:
    """The most rows that blocks of equal size may have, which are walked together; 0 where none fits."""
    return next((n for n in range(_MOST_ROWS, 0, -_TOGETHER) if rows % n == 0), 0)


def _by_blocks(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """One tree after the other for a block of rows."""
    target = b.local("scores", info.out_types[0].shape, info.out_types[0].dtype)
    form, size = _Form(b, inputs, info, target), _block(info.out_types[0].shape[0])

    def body(block: Var) -> Stmt:
        def trees(first: int, count: int, levels: int) -> Stmt:
            def rows(tree: Var, group: Var) -> Stmt:
                begin = block * size + group * _TOGETHER
                return form.walk([(tree + first, begin + n) for n in range(_TOGETHER)], levels)

            return b.repeat("tree", (count, size // _TOGETHER), rows)

        begin = b.repeat("row", size, lambda row: form.begin(block * size + row))
        return seq(begin, *(trees(*run) for run in _runs(info.attrs)))

    count = info.out_types[0].shape[0] // size
    b.perform("walk", (count,), body, lambda block: form.touches(block * size, size))
    return target


FOREST_SCORES = Op(
    "ForestScores", Kind.REDUCTION, _infer, _reference, (5, 7),
    forms={
        "blocks": Form(_by_blocks, lambda info: _block(info.out_types[0].shape[0]) > 0),
        "rows": Form(_by_rows, lambda info: info.out_types[0].size > 0),
    },
    alone=True,
    flops=lambda info: 2 * info.in_types[0].shape[0] * sum(
        count * level
        for count, level in zip(info.attrs.integers("counts"), info.attrs.integers("levels"), strict=True)
    ),
)  # fmt: skip
"""Operands: features of rows, and tables of walks as attribute `given` names them."""

OPS = (FOREST_SCORES,)
