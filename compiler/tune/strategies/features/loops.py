"""Rows of numbers about a lowered kernel: one for each statement that stores, copies or calls.

After the features that Ansor and MetaSchedule compute for each store: arithmetic, the loops around, what each
buffer's accesses touch, arithmetic intensity along the loops, memory. Ours add what comes into each cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    REGISTER,
    SCRATCH,
    Alloc,
    AsyncCopy,
    AtomicUpdate,
    Binary,
    Call,
    Cast,
    Evaluate,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Indexed,
    Let,
    Load,
    ReduceLanes,
    Select,
    Shuffle,
    Stmt,
    Store,
    Unary,
)
from compiler.loops.queries import int_of
from compiler.runtime.tensors import Array
from compiler.tune.strategies.features.accesses import Slopes, Touched, slopes, touched, traffic

VERSION = 1
"""Raised with every change of what a column means: models learned before are of no use then."""

OPERATIONS = ("add", "mul", "div", "compare", "call", "select", "move", "integer", "load")
KINDS = ("parallel", "serial", "unrolled", "vectorized", "blocks", "threads")
_BUFFERS = 4
_OF_BUFFER = ("bytes", "unique", "lines", "inner_stride", "reuse", "inner_unique", "writes", "far")
_DEPTHS = 5

COLUMNS: tuple[str, ...] = (
    *(f"ops.{name}" for name in OPERATIONS),
    *(f"each.{name}" for name in OPERATIONS),
    *(f"loops.{name}" for name in KINDS),
    "loops.count", "loops.innermost", "loops.body", "body.loads", "body.ratio", "conditions", "width",
    *(f"buffer{n}.{name}" for n in range(_BUFFERS) for name in _OF_BUFFER),
    *(f"intensity{n}" for n in range(_DEPTHS)),
    "traffic.l1", "traffic.l2", "traffic.l3", "ops_per_byte.l1", "ops_per_byte.l2", "ops_per_byte.l3",
    "registers", "scratch", "alloc.bytes",
)  # fmt: skip
"""Names of the columns of a row."""


def logarithm(value: float) -> float:
    """The binary logarithm of one more than the size of a number, with its sign: finite, and 0 for 0."""
    return math.copysign(math.log2(min(abs(value), 1e30) + 1.0), value)


def loop_rows(lowered: Func, facts: TargetFacts) -> Array:
    """The rows of a lowered kernel: float32, columns as `COLUMNS`; at least one."""
    rows = [_row(item, facts) for item in _leaves(lowered.body, _Place())]
    return np.array(rows or [[0.0] * len(COLUMNS)], np.float32)


# ---------------------------------------------------------------- statements and where they are


@dataclass(frozen=True, slots=True)
class _Place:
    """What is around a statement: loops with their trips, conditions, values, memory of this nest."""

    loops: tuple[tuple[For, float], ...] = ()
    conditions: int = 0
    known: Mapping[str, Slopes] = field(default_factory=dict)
    registers: float = 0.0
    scratch: float = 0.0


@dataclass(frozen=True, slots=True)
class _Leaf:
    stmt: Stmt
    place: _Place


_UNKNOWN_TRIPS = 16.0


def _trips(extent: Expr) -> float:
    """Iterations of a loop: the larger bound of what a run decides."""
    known = int_of(extent)
    if known is not None:
        return float(max(known, 1))
    found = [abs(value) for item in extent.walk() if isinstance(item, Expr) and (value := int_of(item))]
    return float(max(found, default=_UNKNOWN_TRIPS))


def _leaves(stmt: Stmt, place: _Place) -> Iterator[_Leaf]:
    if isinstance(stmt, Store | AtomicUpdate | Evaluate | AsyncCopy):
        yield _Leaf(stmt, place)
        return
    if isinstance(stmt, For):
        place = replace(place, loops=(*place.loops, (stmt, _trips(stmt.extent))))
    elif isinstance(stmt, If):
        place = replace(place, conditions=place.conditions + 1)
    elif isinstance(stmt, Let):
        place = replace(place, known={**place.known, stmt.var.name: slopes(stmt.value, place.known)})
    elif isinstance(stmt, Alloc):
        place = _with_memory(place, stmt)
    for body in stmt.bodies():
        yield from _leaves(body, place)


def _with_memory(place: _Place, alloc: Alloc) -> _Place:
    size = math.prod(int_of(item) or 1 for item in alloc.buffer.shape) * alloc.buffer.dtype.bytes
    if alloc.buffer.scope == REGISTER:
        return replace(place, registers=place.registers + size)
    return replace(place, scratch=place.scratch + size)


# ---------------------------------------------------------------- one row


def _row(leaf: _Leaf, facts: TargetFacts) -> list[float]:
    place = leaf.place
    trips = [count for _, count in place.loops]
    times = math.prod(trips)
    each = _operations(leaf.stmt)
    accesses = list(_accesses(leaf))
    inside = [item for item in accesses if item.buffer.scope != REGISTER]
    work = times * sum(each[name] for name in OPERATIONS[:6])
    caches = [float(level.bytes) for level in (facts.l1, facts.l2, facts.l3)]
    apart = list({(item.buffer.name, item.strides): item for item in inside}.values())
    moved = [traffic(apart, trips, room) for room in caches]
    vector = max(facts.vector_bits / 8, 1.0) * max(facts.vector_registers, 1)
    values = [
        *(times * each[name] for name in OPERATIONS),
        *(each[name] for name in OPERATIONS),
        *_kinds(place),
        len(place.loops),
        trips[-1] if trips else 1.0,
        *_body(place, accesses),
        place.conditions,
        max((item.width for item in accesses), default=1),
        *_buffers(inside, trips),
        *_intensity(apart, trips, sum(each[name] for name in OPERATIONS[:6])),
        *moved,
        *(work / max(item, 1.0) for item in moved),
        16.0 * place.registers / vector,
        place.scratch,
        _written(leaf.stmt),
    ]
    return [logarithm(value) for value in values]


_BINARY = {"add": "add", "sub": "add", "mul": "mul", "div": "div", "min": "compare", "max": "compare"}


def _operations(stmt: Stmt) -> dict[str, float]:
    """Instructions of one execution, those of all unrolled loops left out; float and the rest."""
    found = dict.fromkeys(OPERATIONS, 0.0)
    for item in stmt.walk():
        kind = _operation(item)
        if kind:
            found[kind] += 1.0
    return found


def _operation(item: IRNode) -> str:
    if isinstance(item, Binary):
        return _BINARY.get(item.op, "compare") if item.a.dtype.is_float else "integer"
    if isinstance(item, Load):
        return "load" if item.buffer.scope != REGISTER else ""
    if isinstance(item, Call):
        return "call"
    if isinstance(item, Select):
        return "select"
    if isinstance(item, Unary):
        return "add"
    return "move" if isinstance(item, Cast | Shuffle | ReduceLanes) else ""


def _kinds(place: _Place) -> list[float]:
    """Products of the trips of each kind of loop."""
    products = dict.fromkeys(KINDS, 1.0)
    for loop, trips in place.loops:
        if loop.kind is ForKind.BOUND:
            products["threads" if loop.over_threads else "blocks"] *= trips
        else:
            products[loop.kind.value] *= trips
    return list(products.values())


def _body(place: _Place, accesses: list[Touched]) -> list[float]:
    """Of an iteration of the innermost loop that stays one: copies of the statement, loads, copies for each.

    What several copies load from one place they load once.
    """
    kinds = [loop.kind is ForKind.UNROLLED for loop, _ in place.loops]
    first = len(kinds) - (kinds[::-1].index(False) if False in kinds else len(kinds))
    copies = math.prod(trips for _, trips in place.loops[first:])
    reads = [item for item in accesses if not item.writes and item.buffer.scope != REGISTER]
    loads = sum(item.unique[first] / max(item.unique[-1], 1.0) for item in reads)
    return [copies, loads, copies / max(loads, 1.0)]


def _accesses(leaf: _Leaf) -> Iterator[Touched]:
    place = leaf.place
    for item in leaf.stmt.walk():
        if isinstance(item, Indexed):
            writes = isinstance(item, Store | AtomicUpdate)
            yield touched(item, place.loops, place.known, writes=writes)


def _buffers(accesses: list[Touched], trips: list[float]) -> list[float]:
    """The buffers that most is read of, one after the other; each by its access that touches most."""
    most: dict[str, Touched] = {}
    for item in accesses:
        known = most.get(item.buffer.name)
        if known is None or item.unique[0] > known.unique[0]:
            most[item.buffer.name] = item
    ordered = sorted(most.values(), key=lambda item: (-item.unique[0], item.buffer.name))[:_BUFFERS]
    values = [value for item in ordered for value in _of_buffer(item, trips)]
    return values + [0.0] * (_BUFFERS * len(_OF_BUFFER) - len(values))


def _of_buffer(item: Touched, trips: list[float]) -> list[float]:
    all_bytes = math.prod(trips) * item.unique[-1]
    # The innermost loop that leaves the access where it is: how often what it touched is used again.
    still = [n for n, stride in enumerate(item.strides) if stride == 0]
    innermost = still[-1] if still else len(trips)
    return [
        all_bytes,
        item.unique[0],
        item.lines[0],
        next((stride for stride in reversed(item.strides) if stride), 0.0),
        all_bytes / max(item.unique[0], 1.0),
        item.unique[min(innermost + 1, len(trips))],
        float(item.writes),
        float(item.buffer.scope != SCRATCH),
    ]


def _intensity(accesses: list[Touched], trips: list[float], work: float) -> list[float]:
    """Arithmetic for each byte touched, inside of so many of the outer loops."""
    curve = []
    for sample in range(_DEPTHS):
        n = round(sample * len(trips) / (_DEPTHS - 1))
        size = sum(item.unique[n] for item in accesses)
        curve.append(work * math.prod(trips[n:]) / max(size, 1.0))
    return curve


def _written(stmt: Stmt) -> float:
    """Bytes of the buffer that is written."""
    if not isinstance(stmt, Store | AtomicUpdate):
        return 0.0
    return float(math.prod(int_of(item) or 1 for item in stmt.buffer.shape) * stmt.buffer.dtype.bytes)
