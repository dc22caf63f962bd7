"""Expressions and buffers: the part of the loop IR's grammar that computes values, and how to make them.

Import these names from `compiler.loops.ir`, which has the whole grammar.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from compiler.core.node import IRNode, node
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
_REDUCERS = frozenset({"add", "mul", "min", "max", "and", "or", "bitand", "bitor", "bitxor"})


class Expr(IRNode):
    """A value; `dtype` says its element type and lane count."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        raise AssertionError(f"{type(self).__name__} has no dtype")

    def type_errors(self) -> Iterator[str]:
        """What is wrong with operands that are right by themselves; `{}` stands for the expression's text."""
        return iter(())

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


Number = int | float | bool
ExprLike = Expr | Number


class Indexed(IRNode):
    """What names `buffer[indices]`: a load, a store, an address."""

    __slots__ = ()
    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def width(self) -> int:
        """How many elements are accessed at once."""
        return max((index.dtype.lanes for index in self.indices), default=1)

    @property
    def element(self) -> Region:
        """The box of that one element."""
        return Region(self.buffer, self.indices, tuple(const(1) for _ in self.indices))


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

    VALUES: ClassVar = lambda one: (repr(one.value), one.type)  # -0.0 is not 0.0, nor True 1
    value: int | float | bool
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    def type_errors(self) -> Iterator[str]:
        if self.type.lanes != 1:
            yield "the literal {} has lanes; broadcast a scalar instead"


@node
class Binary(Expr):
    """`op` from BINARY; operands have the same type, comparisons give bool with the same lanes."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return BOOL.with_lanes(self.a.dtype.lanes) if self.op in COMPARISONS else self.a.dtype

    def type_errors(self) -> Iterator[str]:
        a, b = self.a.dtype, self.b.dtype
        divides = self.op in ("div", "floordiv", "floormod", "truncdiv", "truncmod")
        if self.op not in BINARY:
            yield f"`{self.op}` is no operation"
        elif a != b:
            yield f"the operands of {{}} are {a} and {b}"
        elif not _accepts(self.op, a):
            yield f"{{}} applies {self.op} to {a}"
        elif divides and a.is_int and isinstance(self.b, Const) and self.b.value == 0:
            yield "{} divides by zero"


@node
class Unary(Expr):
    """neg, not, bitnot."""

    op: str
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    def type_errors(self) -> Iterator[str]:
        kind = self.a.dtype
        good = {"neg": not kind.is_bool, "not": kind.is_bool, "bitnot": kind.is_int or kind.is_bool}
        if not good.get(self.op, False):
            yield f"`{self.op}` cannot be applied to {kind}"


@node
class Select(Expr):
    """`a` where `cond` holds, else `b`; only the chosen side has to be valid to evaluate."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    def type_errors(self) -> Iterator[str]:
        cond, a, b = self.cond.dtype, self.a.dtype, self.b.dtype
        if not cond.is_bool or cond.lanes not in (1, a.lanes):
            yield f"the condition of {{}} is {cond}"
        if a != b:
            yield f"the sides of {{}} are {a} and {b}"


@node
class Cast(Expr):
    """Conversion; float to int truncates, to f16/bf16/f8 rounds to nearest even."""

    type: DType
    value: Expr

    @property
    def dtype(self) -> DType:
        return self.type

    def type_errors(self) -> Iterator[str]:
        if self.value.dtype.lanes != self.type.lanes:
            yield f"{{}} changes the number of lanes of {self.value.dtype}"


@node
class Load(Expr, Indexed):
    """`buffer[indices]`; a Ramp in the last index gives a vector. Masked-off lanes read `other`."""

    READS: ClassVar = ("element",)
    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr | None = None
    other: Expr | None = None

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype.with_lanes(self.buffer.dtype.lanes * self.width)


@node
class Ramp(Expr):
    """The vector base, base + stride, ..., `lanes` long."""

    SPELLING: ClassVar = "ramp({base}, {stride}, {lanes:the number of lanes})"
    base: Expr
    stride: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return self.base.dtype.with_lanes(self.lanes)

    def type_errors(self) -> Iterator[str]:
        if self.base.dtype != self.stride.dtype:
            yield "base and stride of {} have different types"
        if self.lanes < 2:
            yield "{} has fewer than two lanes"


@node
class Broadcast(Expr):
    """A scalar in every lane."""

    SPELLING: ClassVar = "broadcast({value}, {lanes:the number of lanes})"
    value: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return self.value.dtype.with_lanes(self.lanes)

    def type_errors(self) -> Iterator[str]:
        if self.lanes < 2:
            yield "{} has fewer than two lanes"


@node
class Shuffle(Expr):
    """Lanes picked by number from the concatenation of `vectors`."""

    SPELLING: ClassVar = "shuffle([{vectors}], [{lanes:a lane number}])"
    vectors: tuple[Expr, ...]
    lanes: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.vectors[0].dtype.with_lanes(len(self.lanes))

    def type_errors(self) -> Iterator[str]:
        total = sum(item.dtype.lanes for item in self.vectors)
        if len({item.dtype.scalar for item in self.vectors}) != 1:
            yield "{} mixes element types"
        if not self.lanes or any(not 0 <= lane < total for lane in self.lanes):
            yield f"{{}} picks a lane that is not among {total}"


@node
class ReduceLanes(Expr):
    """All lanes of a vector combined (`add`, `mul`, `min`, `max`) into one scalar."""

    SPELLING: ClassVar = "reduce({op:an operation such as add}, {value})"
    op: str
    value: Expr

    @property
    def dtype(self) -> DType:
        return self.value.dtype.scalar

    def type_errors(self) -> Iterator[str]:
        if self.op not in _REDUCERS:
            yield f"`{self.op}` cannot combine lanes"


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
class AddressOf(Expr, Indexed):
    """Reference to `buffer[indices]`, an argument of intrinsics, which may read and write there."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


def _accepts(op: str, kind: DType) -> bool:
    if op in LOGICAL:
        return kind.is_bool
    if op in ("shl", "shr"):
        return kind.is_int
    if op in BITWISE:
        return kind.is_int or kind.is_bool
    return op in COMPARISONS or not kind.is_bool or op in ("min", "max")


# ---------------------------------------------------------------- buffers

GLOBAL, CONSTANT, CLUSTER, SHARED, SCRATCH, REGISTER, FRAGMENT = (
    "global",  # memory of the device, visible to all
    "constant",  # known at compile time, kept in the model library
    "cluster",  # the blocks of a cluster: the first index is the rank of the block that holds an element
    "shared",  # one work-group (GPU)
    "scratch",  # one thread, in memory
    "register",  # one thread, in registers: indices must be constant after unrolling
    "fragment",  # a matrix unit's tile, spread over a sub-group
)
"""The common scopes. The set is open: a target may bring its own, such as `amx.tile`."""


@node
class Buffer(IRNode):
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
class Region(IRNode):
    """The box of `buffer` that starts at `begin` and is `extent` long in each dimension."""

    buffer: Buffer
    begin: tuple[Expr, ...]
    extent: tuple[Expr, ...]


# ---------------------------------------------------------------- making expressions


def const(value: Number, dtype: DType = INDEX) -> Const:
    """A literal of the given scalar type (Python's kind of number follows the type)."""
    if dtype.is_bool:
        return Const(bool(value), dtype)
    return Const(float(value) if dtype.is_float else int(value), dtype)


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
    """The smaller of two values."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger of two values."""
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
