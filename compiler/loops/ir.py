"""The loop IR: the whole grammar.

A `Func` is a loop program over `Buffer`s. Before lowering, every statement of computation sits in a
`Block`: a unit of work over iteration variables whose bindings to the surrounding loops are
expressions, so that loops can be rearranged without touching the work (the schedulable form). After lowering
there are no blocks, buffers are flat, and loops carry their final kind. Values and buffers are written in
`loops/exprs.py`, statements and functions here.

Names are identity: loop variables, block names and buffer names are unique in a Func, and the
iteration variables of a block are unique in the Func, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, ClassVar, Self

from compiler.core.node import IRNode, node
from compiler.core.types import BOOL
from compiler.loops.exprs import (
    ARITHMETIC,
    BINARY,
    BITWISE,
    CLUSTER,
    COMPARISONS,
    CONSTANT,
    FRAGMENT,
    GLOBAL,
    LOGICAL,
    REGISTER,
    SCRATCH,
    SHARED,
    UNARY,
    AddressOf,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    ExprLike,
    Indexed,
    Load,
    Ramp,
    ReduceLanes,
    Region,
    Select,
    Shuffle,
    Unary,
    Var,
    all_of,
    binary,
    call,
    const,
    maximum,
    minimum,
    wrap,
)

__all__ = [
    "ARITHMETIC",
    "BINARY",
    "BITWISE",
    "CLUSTER",
    "COMPARISONS",
    "CONSTANT",
    "COUNTERS",
    "EXTENTS",
    "FRAGMENT",
    "GLOBAL",
    "IN_PLACE",
    "LIMITS",
    "LOGICAL",
    "OPERANDS",
    "PART",
    "RANK",
    "REGISTER",
    "SAMPLES",
    "SCRATCH",
    "SHARED",
    "SYMBOLS",
    "UNARY",
    "WORKSPACE",
    "AddressOf",
    "Alloc",
    "AsyncCommit",
    "AsyncCopy",
    "AsyncWait",
    "AtomicUpdate",
    "Barrier",
    "Binary",
    "Block",
    "Broadcast",
    "Buffer",
    "Call",
    "Cast",
    "Const",
    "Dim",
    "Evaluate",
    "Expr",
    "ExprLike",
    "For",
    "ForKind",
    "Func",
    "If",
    "Indexed",
    "Iter",
    "LastBlock",
    "Let",
    "Load",
    "Ramp",
    "ReduceLanes",
    "Region",
    "Scoped",
    "Select",
    "Seq",
    "Shuffle",
    "Stmt",
    "Store",
    "Unary",
    "Var",
    "all_of",
    "binary",
    "call",
    "const",
    "maximum",
    "minimum",
    "seq",
    "statements",
    "wrap",
]  # fmt: skip

# ---------------------------------------------------------------- statements

RANK = "blockRank"
"""The tag of loops over the blocks of a cluster (CUDA: `cluster_group::block_rank`)."""

PART = "blockPart"
"""The tag of loops over blocks of which the last one to end does what follows the loop (`LastBlock`)."""


class ForKind(Enum):
    """How the iterations of a loop are executed."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    BOUND = "bound"

    def __repr__(self) -> str:
        return self.value


class Stmt(IRNode):
    """Something that is executed."""

    __slots__ = ()

    def bodies(self) -> list[Stmt]:
        """The statements directly below, in field order; expressions are not entered."""
        return [item for item in self.children() if isinstance(item, Stmt)] if self.BODY_FIELDS else []

    def map_bodies(self, fn: Callable[[Stmt], Stmt]) -> Self:
        """Apply `fn` to them; the same object comes back when nothing changed."""
        if not self.BODY_FIELDS:
            return self
        return self.map_children(lambda item: fn(item) if isinstance(item, Stmt) else item)


@node
class Seq(Stmt):
    """Statements one after the other."""

    stmts: tuple[Stmt, ...]


@node
class For(Stmt):
    """`for var in 0..extent`; `tag` names the hardware axis of a bound loop (`threadIdx.x`)."""

    BINDS: ClassVar = ("var",)
    var: Var
    extent: Expr
    body: Stmt
    kind: ForKind = ForKind.SERIAL
    tag: str | None = None
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def over_threads(self) -> bool:
        """Whether its iterations are the threads of a block."""
        return self.kind is ForKind.BOUND and (self.tag or "").startswith("threadIdx.")

    @property
    def over_ranks(self) -> bool:
        """Whether its iterations are the blocks of a cluster."""
        return self.kind is ForKind.BOUND and self.tag == RANK

    @property
    def over_blocks(self) -> bool:
        """Whether its iterations are the blocks of a launch, or some of them that belong together."""
        tag = self.tag or ""
        return self.kind is ForKind.BOUND and (tag in (RANK, PART) or tag.startswith("blockIdx."))


@node
class Iter(IRNode):
    """One iteration variable of a block: its domain 0..extent, its kind, and its value."""

    BINDS: ClassVar = ("var",)
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

    READS: ClassVar = ("reads",)
    WRITES: ClassVar = ("writes",)
    BINDS: ClassVar = ("iters",)
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
class Store(Stmt, Indexed):
    """`buffer[indices] = value`; masked-off lanes are left alone."""

    WRITES: ClassVar = ("element",)
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


@node
class AtomicUpdate(Stmt, Indexed):
    """`buffer[indices] = op(buffer[indices], value)`, indivisibly."""

    READS: ClassVar = ("element",)
    WRITES: ClassVar = ("element",)
    op: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@node
class LastBlock(Stmt, Indexed):
    """The one of `count` blocks that comes here last runs `body`, and sees what the others wrote before.

    All threads of a block come together. `buffer[indices]` counts the blocks: it is zero before the first and
    after the last one. SHARED_BYTES: of each block, where one thread leaves for the others what it counted.
    """

    SHARED_BYTES: ClassVar = 64
    READS: ClassVar = ("element",)
    WRITES: ClassVar = ("element",)
    buffer: Buffer
    indices: tuple[Expr, ...]
    count: int
    body: Stmt


@node
class If(Stmt):
    """Run `then` where `cond` holds, else `orelse`."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """`var = value` inside `body`."""

    BINDS: ClassVar = ("var",)
    var: Var
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """`buffer` exists (with undefined content) inside `body`."""

    BINDS: ClassVar = ("buffer",)
    buffer: Buffer
    body: Stmt


@node
class Evaluate(Stmt):
    """An expression for its effect: an intrinsic call."""

    value: Expr


@node
class Scoped(Stmt):
    """`setup`, `body`, `teardown`: hoisted configuration of an intrinsic (tile shapes, rounding modes)."""

    SPELLING: ClassVar = "scoped"
    setup: Stmt
    body: Stmt
    teardown: Stmt


@node
class Barrier(Stmt):
    """All threads of a `subgroup`, `shared` or `cluster` arrive before any goes on, and see all writes."""

    SPELLING: ClassVar = "barrier {scope:a scope such as shared}"
    scope: str


@node
class AsyncCopy(Stmt):
    """Start copying the box `source` to the box `target` as part of the newest open group.

    where: of what thread; the others start to fill the target with zeros, and read nothing.
    """

    SPELLING: ClassVar = "async_copy {target} <- {source}{group!o:a group number}{where!o}"
    READS: ClassVar = ("source",)
    WRITES: ClassVar = ("target",)
    target: Region
    source: Region
    group: int = 0
    where: Expr = const(1, BOOL)


@node
class AsyncCommit(Stmt):
    """Close the open group of copies."""

    SPELLING: ClassVar = "async_commit{group!o:a group number}"
    group: int = 0


@node
class AsyncWait(Stmt):
    """Wait until at most `pending` closed groups are unfinished."""

    SPELLING: ClassVar = (
        "async_wait pending {pending:how many groups may be unfinished}{group!o:a group number}"
    )
    group: int = 0
    pending: int = 0


WORKSPACE = "workspace"
"""Func attribute: how many parameters just before the outputs are workspace."""


COUNTERS = "counters"
"""Func attribute: how many parameters just before the outputs, workspace, count blocks: they are zero before
a call and after it."""


SAMPLES = "samples"
"""Func attribute of a function for one sample of a batch: the largest batch, then how many elements lie from
one sample to the next in each parameter but workspace, 0 where all share it. Lowering adds the loop."""


SYMBOLS = "symbols"
"""Func attribute of a function whose extents a run decides: least and largest value of each symbol."""
EXTENTS = "extents"
"""Func attribute, with SYMBOLS: for each axis of a result of which a run has a part only, the number of the
parameter, the axis, and the part: offset, divisor, a factor for each symbol. Nobody reads what is beyond."""
OPERANDS = "operands"
"""The same of operands, of a function that sums."""
LIMITS = "limits"
"""Block annotation, with SYMBOLS: iterations beyond which nobody needs what a block writes, where the place
in the result is a sum: the name of the iteration's variable, and how many there are, as above."""
IN_PLACE = "in_place"
"""Func attribute: the number of the parameter that is the beginning of the result, and lies in its memory."""


@node
class Dim(IRNode):
    """A symbolic extent: a parameter with a range and a known divisor."""

    BINDS: ClassVar = ("var",)
    var: Var
    minimum: int
    maximum: int
    divisor: int = 1


@node
class Func(IRNode):
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
    def inputs(self) -> tuple[Buffer, ...]:
        """Parameters before the outputs, workspace among them."""
        return self.params[: len(self.params) - self.outputs]

    @property
    def results(self) -> tuple[Buffer, ...]:
        """The parameters that are outputs."""
        return self.params[len(self.params) - self.outputs :]

    @property
    def workspace(self) -> tuple[Buffer, ...]:
        """Parameters just before the outputs that are memory to work in (attribute WORKSPACE counts them)."""
        return self.inputs[len(self.inputs) - int(dict(self.attrs).get(WORKSPACE, 0)) :]

    def buffer(self, name: str) -> Buffer:
        """The parameter or local buffer called `name`; KeyError when there is none."""
        for item in self.buffers:
            if item.name == name:
                return item
        raise KeyError(name)

    @property
    def counters(self) -> tuple[Buffer, ...]:
        """The workspace that is zero between calls (attribute COUNTERS counts them)."""
        return self.inputs[len(self.inputs) - int(dict(self.attrs).get(COUNTERS, 0)) :]

    def blocks(self) -> Iterator[Block]:
        """All blocks, in program order."""
        return (item for item in statements(self.body) if isinstance(item, Block))


def statements(root: Stmt) -> Iterator[Stmt]:
    """`root` and all statements below it, parents first; expressions are not entered."""
    stack = [root]
    while stack:
        current = stack.pop()
        yield current
        stack += reversed(current.bodies())


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order, nested sequences flattened; a single statement stays itself."""
    flat: list[Stmt] = []
    for item in stmts:
        flat.extend(item.stmts if isinstance(item, Seq) else (item,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
