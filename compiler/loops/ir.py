"""The loop IR: the whole grammar on one page.

A `Func` is a loop program over `Buffer`s. Before lowering, every statement of computation sits in a
`Block`: a unit of work over iteration variables whose bindings to the surrounding loops are
expressions, so that loops can be rearranged without touching the work (the schedulable form). After lowering
there are no blocks, buffers are flat, and loops carry their final kind.

Names are identity: loop variables, block names and buffer names are unique in a Func, and the
iteration variables of a block are unique in the Func, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from compiler.core.node import Node, node
from compiler.core.types import BOOL, F32, INDEX, DType

# ---------------------------------------------------------------- expressions

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
LOGICAL = frozenset({"and", "or"})
ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "pow"}
)
BITWISE = frozenset({"bitand", "bitor", "bitxor", "shl", "shr"})
BINARY = COMPARISONS | LOGICAL | ARITHMETIC | BITWISE
UNARY = frozenset({"neg", "not", "bitnot"})


class Expr(Node):
    """A value; `dtype` says its element type and lane count."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        raise AssertionError(f"{type(self).__name__} has no dtype")

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", wrap(other, self.dtype), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", wrap(other, self.dtype), self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", wrap(other, self.dtype), self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", wrap(other, self.dtype), self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __neg__(self) -> Expr:
        return Unary("neg", self)

    # Comparisons are methods with names: `==` on nodes is structural equality.
    def lt(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def le(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def gt(self, other: ExprLike) -> Expr:
        return binary("gt", self, other)

    def ge(self, other: ExprLike) -> Expr:
        return binary("ge", self, other)

    def eq(self, other: ExprLike) -> Expr:
        return binary("eq", self, other)

    def ne(self, other: ExprLike) -> Expr:
        return binary("ne", self, other)


ExprLike = Expr | int | float | bool


@node
class Var(Expr):
    """A loop variable, block iteration variable, `dim` variable or let-bound value."""

    name: str
    type: DType = INDEX

    @property
    def dtype(self) -> DType:
        return self.type


@node
class Const(Expr):
    """A literal."""

    value: int | float | bool
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    def __hash__(self) -> int:  # -0.0 and 0.0, 1 and True are different literals
        return hash((repr(self.value), self.type))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const) and self.type == other.type and repr(self.value) == repr(other.value)
        )


@node
class Binary(Expr):
    """`op` from BINARY; operands have the same type, comparisons give bool with the same lanes."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return BOOL.with_lanes(self.a.dtype.lanes) if self.op in COMPARISONS else self.a.dtype


@node
class Unary(Expr):
    """neg, not, bitnot."""

    op: str
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@node
class Select(Expr):
    """`a` where `cond` holds, else `b`; only the chosen side has to be valid to evaluate."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@node
class Cast(Expr):
    """Conversion; float to int truncates, to f16/bf16/f8 rounds to nearest even."""

    type: DType
    value: Expr

    @property
    def dtype(self) -> DType:
        return self.type


@node
class Load(Expr):
    """`buffer[indices]`; a Ramp in the last index gives a vector. Masked-off lanes read `other`."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr | None = None
    other: Expr | None = None

    @property
    def dtype(self) -> DType:
        lanes = max((index.dtype.lanes for index in self.indices), default=1)
        return self.buffer.dtype.with_lanes(self.buffer.dtype.lanes * lanes)


@node
class Ramp(Expr):
    """The vector base, base + stride, ..., `lanes` long."""

    base: Expr
    stride: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return self.base.dtype.with_lanes(self.lanes)


@node
class Broadcast(Expr):
    """A scalar in every lane."""

    value: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return self.value.dtype.with_lanes(self.lanes)


@node
class Shuffle(Expr):
    """Lanes picked by number from the concatenation of `vectors`."""

    vectors: tuple[Expr, ...]
    lanes: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.vectors[0].dtype.with_lanes(len(self.lanes))


@node
class ReduceLanes(Expr):
    """All lanes of a vector combined (`add`, `mul`, `min`, `max`) into one scalar."""

    op: str
    value: Expr

    @property
    def dtype(self) -> DType:
        return self.value.dtype.scalar


@node
class Call(Expr):
    """A math function (`exp`, `fma`, ...) or a target intrinsic, by name."""

    name: str
    args: tuple[Expr, ...]
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


@node
class AddressOf(Expr):
    """Reference to `buffer[indices]`, an argument of intrinsics and atomics."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


# ---------------------------------------------------------------- buffers

GLOBAL, CONSTANT, SHARED, SCRATCH, REGISTER, FRAGMENT = (
    "global",  # memory of the device, visible to all
    "constant",  # known at compile time, kept in the model library
    "shared",  # one work-group (GPU)
    "scratch",  # one thread, in memory
    "register",  # one thread, in registers: indices must be constant after unrolling
    "fragment",  # a matrix unit's tile, spread over a sub-group
)
"""The common scopes. The set is open: a target may bring its own, such as `amx.tile`."""


@node
class Buffer(Node):
    """A typed region of memory.

    shape, strides (elements) and offset (elements) are expressions; no strides means dense row-major.
    `alias_of` names the buffer whose memory this one shares. `lane_map` (fragments and registers)
    names the target's distribution of elements over lanes.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: str = GLOBAL
    strides: tuple[Expr, ...] = ()
    offset: Expr | None = None
    alias_of: str | None = None
    alignment: int = 64
    lane_map: str | None = None

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        items = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(wrap(item, INDEX) for item in items))

    def __len__(self) -> int:
        return len(self.shape)


@node
class Region(Node):
    """The box of `buffer` that starts at `begin` and is `extent` long in each dimension."""

    buffer: Buffer
    begin: tuple[Expr, ...]
    extent: tuple[Expr, ...]


# ---------------------------------------------------------------- statements


class ForKind(Enum):
    """How the iterations of a loop are executed."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    BOUND = "bound"

    def __repr__(self) -> str:
        return self.value


class Stmt(Node):
    """Something that is executed."""

    __slots__ = ()


@node
class Seq(Stmt):
    """Statements one after the other."""

    stmts: tuple[Stmt, ...]


@node
class For(Stmt):
    """`for var in 0..extent`; `tag` names the hardware axis of a bound loop (`threadIdx.x`)."""

    var: Var
    extent: Expr
    body: Stmt
    kind: ForKind = ForKind.SERIAL
    tag: str | None = None
    annotations: tuple[tuple[str, Any], ...] = ()


@node
class Iter(Node):
    """One iteration variable of a block: its domain 0..extent, its kind, and its value."""

    var: Var
    extent: Expr
    kind: str  # "spatial" | "reduce"
    binding: Expr


@node
class Block(Stmt):
    """A unit of work.

    `init` runs when all reduce iterations are at 0, before `body`. The block runs only where
    `predicate` (over the surrounding loop variables) holds. `reads` and `writes` are boxes in terms of the
    iteration variables. A `constant-only` annotation marks work that the pipeline does at compile time.
    """

    name: str
    iters: tuple[Iter, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr | None = None
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def is_reduction(self) -> bool:
        return any(item.kind == "reduce" for item in self.iters)


@node
class Store(Stmt):
    """`buffer[indices] = value`; masked-off lanes are left alone."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


@node
class AtomicUpdate(Stmt):
    """`buffer[indices] = op(buffer[indices], value)`, indivisibly."""

    op: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@node
class If(Stmt):
    """Run `then` where `cond` holds, else `orelse`."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """`var = value` inside `body`."""

    var: Var
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """`buffer` exists (with undefined content) inside `body`."""

    buffer: Buffer
    body: Stmt


@node
class Evaluate(Stmt):
    """An expression for its effect: an intrinsic call."""

    value: Expr


@node
class Scoped(Stmt):
    """`setup`, `body`, `teardown`: hoisted configuration of an intrinsic (tile shapes, rounding modes)."""

    setup: Stmt
    body: Stmt
    teardown: Stmt


@node
class Barrier(Stmt):
    """All threads of the scope (`shared`, `subgroup`) arrive before any goes on, and see each other's writes."""

    scope: str


@node
class AsyncCopy(Stmt):
    """Start copying the box `source` to the box `target` as part of the newest open group."""

    target: Region
    source: Region
    group: int = 0


@node
class AsyncCommit(Stmt):
    """Close the open group of copies."""

    group: int = 0


@node
class AsyncWait(Stmt):
    """Wait until at most `pending` closed groups are unfinished."""

    group: int = 0
    pending: int = 0


WORKSPACE = "workspace"
"""Func attribute: how many parameters just before the outputs are workspace."""


@node
class Dim(Node):
    """A symbolic extent: a parameter with a range and a known divisor."""

    var: Var
    minimum: int
    maximum: int
    divisor: int = 1


@node
class Func(Node):
    """A kernel: parameters (inputs then outputs), symbolic dims, local buffers, body.

    `outputs` counts how many of the last params are written. `allocs` are the intermediate buffers;
    lowering decides where they live.
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    allocs: tuple[Buffer, ...] = ()
    outputs: int = 1
    dims: tuple[Dim, ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return self.params + self.allocs

    @property
    def workspace(self) -> tuple[Buffer, ...]:
        """Parameters just before the outputs that are memory to work in (attribute WORKSPACE counts them)."""
        last = len(self.params) - self.outputs
        return self.params[last - int(dict(self.attrs).get(WORKSPACE, 0)) : last]

    def buffer(self, name: str) -> Buffer:
        """The parameter or local buffer called `name`; KeyError when there is none."""
        for item in self.buffers:
            if item.name == name:
                return item
        raise KeyError(name)

    def blocks(self) -> Iterator[Block]:
        """All blocks, in program order."""
        return (item for item in statements(self.body) if isinstance(item, Block))


def statements(root: Stmt) -> Iterator[Stmt]:
    """`root` and all statements below it, parents first; expressions are not entered."""
    stack = [root]
    while stack:
        current = stack.pop()
        yield current
        if isinstance(current, Store):
            continue
        below = [item for item in current.children() if isinstance(item, Stmt)]
        below.reverse()
        stack += below


# ---------------------------------------------------------------- making expressions


def const(value: int | float | bool, type: DType = INDEX) -> Const:
    """A literal of the given scalar type (Python's kind of number follows the type)."""
    if type.is_bool:
        return Const(bool(value), type)
    return Const(float(value) if type.is_float else int(value), type)


def wrap(value: ExprLike, like: DType) -> Expr:
    """Make an expression of a Python number, typed like its partner."""
    if isinstance(value, Expr):
        return value
    literal = const(value, like.scalar)
    return literal if like.lanes == 1 else Broadcast(literal, like.lanes)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`a op b`; folds integer literals and the neutral elements 0 and 1 (floats are left alone)."""
    if not isinstance(a, Expr):
        a = wrap(a, b.dtype if isinstance(b, Expr) else F32)
    b = wrap(b, a.dtype)
    if a.dtype != b.dtype:
        raise TypeError(f"{op}: operands have different types, {a.dtype} and {b.dtype}")
    if a.dtype.is_int:
        folded = _fold_int(op, a, b)
        if folded is not None:
            return folded
    return Binary(op, a, b)


def _fold_int(op: str, a: Expr, b: Expr) -> Expr | None:
    if isinstance(a, Const) and isinstance(b, Const):
        return _fold_int_consts(op, a, b)
    if isinstance(b, Const):
        if b.value == 0 and op in {"add", "sub"}:
            return a
        if b.value == 1 and op in {"mul", "floordiv"}:
            return a
        if b.value == 0 and op == "mul":
            return b
        if b.value == 1 and op == "floormod":
            return const(0, a.dtype)
    if isinstance(a, Const) and ((a.value == 0 and op == "add") or (a.value == 1 and op == "mul")):
        return b
    if isinstance(a, Const) and a.value == 0 and op in {"mul", "floordiv", "floormod"}:
        return a
    return None


_INT_FOLDS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y if y else None,
    "floormod": lambda x, y: x % y if y else None,
    "min": min,
    "max": max,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}


def _fold_int_consts(op: str, a: Const, b: Const) -> Expr | None:
    fold = _INT_FOLDS.get(op)
    value = fold(a.value, b.value) if fold else None
    if value is None:
        return None
    return const(value, BOOL if op in COMPARISONS else a.dtype)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("max", a, b)


def all_of(*conditions: Expr | None) -> Expr | None:
    """The conjunction of the given conditions; None (nothing to check) when there is none."""
    result: Expr | None = None
    for item in conditions:
        if item is None or (isinstance(item, Const) and item.value is True):
            continue
        result = item if result is None else Binary("and", result, item)
    return result


def call(name: str, *args: Expr) -> Call:
    """A math function whose result has the type of its first argument."""
    return Call(name, args, args[0].dtype)


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order, nested sequences flattened; a single statement stays itself."""
    flat: list[Stmt] = []
    for item in stmts:
        flat.extend(item.stmts if isinstance(item, Seq) else (item,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
