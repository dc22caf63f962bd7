"""Whether what a library made of a graph is right: within the tolerance of `tk verify` of what the oracles
made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from compiler.verify.compare import compare
from compiler.verify.report import Comparison
from compiler.verify.tolerance import reduction_length, tolerance_for
from tests.fuzz.graphs import FuzzGraph
from tests.fuzz.grow import BF16, F16, F32, F64, Array
from tests.fuzz.oracle import Expected, Oracle, Outputs, by_nodes, moved, types_of
from tests.fuzz.outcome import Outcome, State

_DRAWS = 24
_MARGIN = 8.0
"""How much farther than rounding moves an element a right one may be off."""


_ORDER = (F64, F32, F16, BF16)

# Operators whose results are right to the last bit, or wrong.
_EXACT = frozenset(
    [
        "Abs",
        "And",
        "ArgMax",
        "ArgMin",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Cast",
        "Ceil",
        "Clip",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "DepthToSpace",
        "Equal",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "GlobalMaxPool",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Max",
        "MaxPool",
        "Min",
        "Neg",
        "NonZero",
        "Not",
        "OneHot",
        "Or",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Round",
        "ScatterND",
        "Sign",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)


def exact_values(proto: onnx.ModelProto) -> set[str]:
    """Values that are made by exact operators alone."""
    known = {one.name for one in (*proto.graph.input, *proto.graph.initializer)} | {""}
    for node in proto.graph.node:
        if node.op_type in _EXACT and known.issuperset(node.input):
            known.update(node.output)
    return known


def coarsest(proto: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """Of each value the least exact type of floats that goes into it."""
    known, kinds = types_of(proto), dict[str, np.dtype[Any]]()
    for name, kind in known.items():
        if kind in _ORDER:
            kinds[name] = kind
    for node in proto.graph.node:
        before = [kinds[name] for name in node.input if name in kinds]
        for name in node.output:
            found = [*before, *([known[name]] if name in known and known[name] in _ORDER else [])]
            if found:
                kinds[name] = max(found, key=_ORDER.index)
    return kinds


def judge(graph: FuzzGraph, expected: Expected, made: Sequence[Outputs]) -> Outcome:
    """Compare all outputs of all runs with all oracles."""
    doubts, exact, kinds = "", exact_values(graph.proto), coarsest(graph.proto)
    for run, feeds in enumerate(graph.feeds):
        summed = reduction_length(graph.proto, {name: array.shape for name, array in feeds.items()})
        by_oracle = {oracle: runs[run] for oracle, runs in expected.made.items()}
        for item in graph.proto.graph.output:
            want = next(iter(by_oracle.values()))[item.name].dtype
            kind = kinds.get(item.name, want) if want in _ORDER else want
            tolerance = None if item.name in exact else tolerance_for(kind, summed)
            state, why = _of_output(graph, run, item.name, made[run][item.name], by_oracle, tolerance)
            if state is State.WRONG and _by_nodes_too(
                graph, run, item.name, made[run][item.name], expected, tolerance
            ):
                state, why = State.UNDECIDED, f"output {item.name}: oracles disagree; like ours: by_nodes"
            if state is State.WRONG:
                return Outcome(graph.seed, state, f"run {run}, output {item.name}: {why}")
            doubts = doubts or why
    return Outcome(graph.seed, State.UNDECIDED if doubts else State.PASSED, doubts)


def _by_nodes_too(
    graph: FuzzGraph, run: int, name: str, got: Array, expected: Expected, tolerance: float | None
) -> bool:
    """Whether ours is what comes out where each node is run by itself, by onnxruntime where it can."""
    if by_nodes in expected.made:
        return False
    made = by_nodes(graph.proto, [graph.feeds[run]])
    return not isinstance(made, str) and _compared(name, got, made[0][name], tolerance).passed


def _of_output(
    graph: FuzzGraph,
    run: int,
    name: str,
    got: Array,
    by_oracle: Mapping[Oracle, Outputs],
    tolerance: float | None,
) -> tuple[State, str]:
    """Passed, wrong or undecided, and why."""
    found = {oracle: _compared(name, got, made[name], tolerance) for oracle, made in by_oracle.items()}
    if all(one.passed for one in found.values()):
        return State.PASSED, ""
    first, *others = by_oracle.values()
    if any(not _compared(name, other[name], first[name], tolerance).passed for other in others):
        right = [oracle.__name__ for oracle, one in found.items() if one.passed]
        return State.UNDECIDED, f"output {name}: oracles disagree; like ours: {', '.join(right) or 'none'}"
    if any(one.passed for one in found.values()):
        return State.PASSED, ""
    oracle = next(iter(by_oracle))
    worst = found[oracle]
    if tolerance is not None and _is_rounding(graph, run, name, got, oracle, by_oracle[oracle][name], worst):
        return State.UNDECIDED, f"output {name}: rounding of intermediates moves it as far"
    return State.WRONG, worst.problem or (
        f"differs from {oracle.__name__} by {worst.needed:.2g} of its scale at {list(worst.where)}: "
        f"{worst.actual:.7g}, expected {worst.expected:.7g}; "
        f"tolerance {worst.tolerance:.2g} ({worst.dtype}{list(worst.shape)})"
    )


def _compared(name: str, got: Array, want: Array, tolerance: float | None) -> Comparison:
    """tolerance: None for what has to be exact."""
    return compare(name, got, want, tolerance or 0.0)


def _is_rounding(
    graph: FuzzGraph, run: int, name: str, got: Array, oracle: Oracle, want: Array, worst: Comparison
) -> bool:
    """Whether rounding errors in intermediates move each wrong element about as far as it is off."""
    if worst.problem:
        return False
    farthest = np.zeros(want.shape)
    for seed in range(_DRAWS):
        proto = moved(graph.proto, graph.feeds[run], seed)
        if proto is None:
            return False
        made = oracle(proto, [graph.feeds[run]])
        if isinstance(made, str):  # a model that no oracle runs as a whole is run node by node
            made = by_nodes(proto, [graph.feeds[run]])
        if isinstance(made, str):
            return False
        farthest = np.maximum(farthest, _distance(made[0][name], want))
    off = _distance(got, want)
    return bool(np.all((off <= worst.tolerance * worst.scale) | (off <= _MARGIN * farthest)))


def _distance(a: Array, b: Array) -> Array:
    """Absolute differences; infinite where only one is a number."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.asarray(np.abs(x - y))
    distance[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
    distance[np.isnan(distance)] = np.inf
    return distance
