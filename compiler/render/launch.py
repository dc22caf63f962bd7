"""What a device function is started with: its grid, its blocks, the memory that they share."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.core.diagnostics import InternalError
from compiler.core.target import TargetFacts
from compiler.loops.annotations import ENDS
from compiler.loops.ir import (
    GLOBAL,
    SAMPLES,
    Buffer,
    Const,
    For,
    ForKind,
    Func,
    LastBlock,
    Seq,
    Stmt,
    seq,
    statements,
)
from compiler.loops.queries import buffer_bytes
from compiler.loops.regions import writes_of
from compiler.loops.walk import scoped
from compiler.render.cstyle import SCRATCH_ALIGNMENT
from compiler.render.host import PlanDim, PlanGridEnd
from compiler.render.vocabulary import Dim3

AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Launch:
    """One device function with what it is started with.

    grid: blocks along x, y, z. block: threads of a block. shared_bytes: memory that the threads of a block
    share; dynamic_bytes: what of these the function does not declare itself. params: which parameters of the
    kernel's Func it takes, in order. elastic: fewer blocks along x do the same work, each more of it.
    block_bytes: global memory that each block has to itself; its address comes behind the parameters.
    ends: where a run may need fewer blocks.
    """

    name: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    params: tuple[int, ...]
    elastic: bool = False
    block_bytes: int = 0
    dynamic_bytes: int = 0
    ends: tuple[PlanGridEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceText:
    """The device functions of one kernel as text."""

    text: str
    launches: tuple[Launch, ...]


def plan_grid_ends(loop: For, *, has_samples: bool) -> list[PlanGridEnd]:
    """What the annotation of a loop over blocks says; a free batch is the first of the plan's symbols."""
    axis, batch = (loop.tag or "")[-1], (0,) if has_samples else ()
    return [
        PlanGridEnd(AXES.index(axis), times, step, PlanDim(0, (*batch, *factors), offset, divisor))
        for times, step, offset, divisor, *factors in dict(loop.annotations).get(ENDS, ())
    ]


def sample_steps(func: Func) -> dict[Buffer, int]:
    """Elements from one sample of a free batch to the next, of parameters that hold one for each."""
    largest, *steps = dict(func.attrs).get(SAMPLES, (0,))
    if not largest:
        return {}
    tensors = [item for item in func.params if item not in func.workspace]
    found = {item: step for item, step in zip(tensors, steps, strict=True) if step}
    return found | {item: room_for(buffer_bytes(item)) // item.dtype.bytes for item in func.workspace}


def room_for(size: int) -> int:
    """Bytes that an array takes of what a block shares, up to where the next one may begin."""
    return -(-size // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT


def bound_extent(item: For) -> int:
    """Iterations of a loop over blocks or threads; InternalError where it has no fixed number of them."""
    if not isinstance(item.extent, Const):
        raise InternalError("the extent of a launch is not a number", where=item.var.name)
    return int(item.extent.value)


def nests_of(body: Stmt, facts: TargetFacts) -> list[Stmt]:
    """What is launched one after the other; neighbours that a single thread runs are one launch."""
    nests: list[Stmt] = []
    for item in body.stmts if isinstance(body, Seq) else (body,):
        if nests and not facts.binds_threads and not is_grid(item) and not is_grid(nests[-1]):
            nests[-1] = seq(nests[-1], item)
        else:
            nests.append(item)
    return nests


def is_grid(nest: Stmt) -> bool:
    """Whether blocks deal out the iterations of a launch among them."""
    return isinstance(nest, For) and nest.kind is ForKind.PARALLEL


def passed_on(nest: Stmt) -> set[Buffer]:
    """Global memory that blocks pass to the last one of them, and the counters."""
    last = [item for item in statements(nest) if isinstance(item, LastBlock)]
    used = {one for item in last for one in item.walk() if isinstance(one, Buffer) and one.scope == GLOBAL}
    before = (item for item, _ in scoped(nest, closed=lambda item: isinstance(item, LastBlock)))
    return used & {box.buffer for item in before for box in writes_of(item)}
