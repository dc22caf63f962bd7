"""Steps that several rules share."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.node import IRNode
from compiler.loops.annotations import stage_of
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import CONSTANT, Binary, Block, Const, Expr, ForKind, Func, Iter, Load, Store, Var
from compiler.loops.layout import lanes_last
from compiler.loops.queries import extent_of
from compiler.schedule.program import Access, Program, Site
from compiler.schedule.schedule import Schedule

SMALL = 16_384
"""A loop nest with fewer scalar iterations than this is not worth waking another thread."""


MOST_COPIED = 8
"""Operations that may be written out again because a block reads their result several times."""


def inline_injective(schedule: Schedule, *, repeat: bool, kept: str = "") -> None:
    """Compute every injective intermediate where it is used; reductions, outputs and stages remain.

    repeat: also those that several blocks read, one of them a reduction; else these are computed once. So
    are, in a function without reductions, those that are read so often that expressions would explode, and
    block `kept`.
    """
    pure = not any(block.is_reduction for block in schedule.program.blocks.values())
    for name in schedule.blocks() if pure else reversed(schedule.blocks()):
        site, program = schedule.site(name), schedule.program
        if site.block.is_reduction or stage_of(site.block) or not site.is_store or name == kept:
            continue
        if site.target in program.outputs or len(program.writers(site.target)) != 1:
            continue
        readers = program.readers(site.target)
        if not readers:  # of an index into an axis of one element nothing is left
            continue
        if pure and _copied(site, readers) > MOST_COPIED:
            continue
        if repeat or len(readers) == 1 or not any(item.block.is_reduction for item in readers):
            schedule.compute_inline(name)


def _copied(site: Site, readers: Sequence[Site]) -> int:
    """Operations that inlining a block adds to its readers beyond those that it takes away."""
    parts = (item for reader in readers for item in reader.block.body.walk())
    loads = sum(isinstance(item, Load) and item.buffer.name == site.target for item in parts)
    return (loads - 1) * operations(site.body.value)


def operations(expr: IRNode) -> int:
    """Operations on values, not on indices."""
    if isinstance(expr, Load | Var | Const):
        return 0
    return 1 + sum(map(operations, expr.children()))


def stages(func: Func) -> dict[str, Block]:
    """The stages of a form by name."""
    return {stage: block for block in func.blocks() if (stage := stage_of(block)) is not None}


def consumer(schedule: Schedule, name: str) -> str:
    """The block that a block is an intermediate of; itself where it is of none."""
    if not _is_passing(schedule.site(name), schedule.program):
        return name
    return next((last for last in reversed(schedule.blocks()) if name in intermediates(schedule, last)), name)


def intermediates(schedule: Schedule, name: str) -> list[str]:
    """The blocks, in order, whose values only `name` or another one of them needs; no reduction, no stage."""
    found: list[str] = []
    inside = {name}
    for other in reversed(schedule.blocks()):
        site, program = schedule.site(other), schedule.program
        if not _is_passing(site, program):
            continue
        readers = {reader.name for reader in program.readers(site.target)}
        if readers and readers <= inside and len(program.writers(site.target)) == 1:
            found.append(other)
            inside.add(other)
    return found[::-1]


def _is_passing(site: Site, program: Program) -> bool:
    """Whether a block only makes values for others: no result of the function, no reduction, no stage."""
    kept = not site.is_store or site.reduce or stage_of(site.block) or site.target in program.outputs
    return not kept


def blocks_below(schedule: Schedule, loop: str) -> list[str]:
    """Names of the blocks inside a loop."""
    return [item.name for item in schedule.loop(loop).walk() if isinstance(item, Block)]


def fuse_all(schedule: Schedule, loops: Sequence[str]) -> str:
    """Fuse loops that follow each other; one loop stays itself."""
    return loops[0] if len(loops) == 1 else schedule.fuse(*loops)


def strip_mine(schedule: Schedule, block: str, axis: int, lanes: int) -> None:
    """Let a block run over blocks of lanes, and lanes (last spatial), instead of one iteration."""
    kinds = [item.kind for item in schedule.block(block).iters]
    spatial = [number for number, kind in enumerate(kinds) if kind == "spatial"]
    reduce = [number for number, kind in enumerate(kinds) if kind == "reduce"]
    index_map = IndexMap.identity(len(kinds)).reordered([*spatial, *reduce])
    schedule.transform_block_layout(block, index_map.split(spatial.index(axis), lanes, to=len(spatial)))


def split_iteration(schedule: Schedule, block: str, axis: int, size: int) -> None:
    """Let a block run over groups of `size` and steps inside a group instead of one iteration."""
    rank = len(schedule.block(block).iters)
    schedule.transform_block_layout(block, IndexMap.identity(rank).split(axis, size))


def plainly_indexed(load: Access | Load) -> bool:
    """Whether each index is an iteration by itself, or a constant."""
    return all(isinstance(index, Var | Const) for index in load.indices)


def lone_dim(access: Access, var: Var) -> int | None:
    """The dimension whose index is a variable by itself; None for no dimension, or for several."""
    dims = [number for number, index in enumerate(access.indices) if index == var]
    return dims[0] if len(dims) == 1 else None


def lanes_innermost(schedule: Schedule, block: Site, var: Var, lanes: int) -> None:
    """Constants of a block that run along a variable are kept in blocks of lanes."""
    for load in block.loads:
        dim = lone_dim(load, var)
        if load.buffer.scope == CONSTANT and dim is not None:
            schedule.transform_layout(load.buffer.name, lanes_last(len(load.indices), dim, lanes))


def unroll_inside(schedule: Schedule, block: str, at: str, skip: Sequence[str] = ()) -> None:
    """Unroll the loops of a block inside of `at` but some, the innermost over lanes."""
    loops = list(schedule.loops(block))
    *inner, lane = [loop for loop in loops[loops.index(at) + 1 :] if loop not in skip]
    for loop in inner:
        if schedule.loop(loop).kind is ForKind.SERIAL:
            schedule.unroll(loop)
    schedule.vectorize(lane)


def part_of_steps(schedule: Schedule, loops: Sequence[str], factor: int) -> tuple[list[str], list[str]]:
    """Cut nested loops so that `factor` steps, as `unroll_factors` has it, are loops of their own, inside."""
    outside, inside = list(loops), list[str]()
    while factor > 1:
        loop = outside.pop()
        extent = extent_of(schedule.loop(loop).extent)
        if extent <= factor and outside:
            inside.insert(0, loop)
            factor //= extent
            continue
        around, part = schedule.split(loop, (None, factor))
        return [*outside, around], [part, *inside]
    return outside, inside


def group_sizes(expr: IRNode, var: Var) -> list[int]:
    """The size of each group `var // size` that an expression tells apart."""
    return [
        int(node.b.value)
        for node in expr.walk()
        if isinstance(node, Binary) and node.op == "floordiv" and node.a == var and isinstance(node.b, Const)
    ]


def is_lane_of(index: Expr, name: str) -> bool:
    """`name % lanes`, or `name % group % lanes` where channel groups are blocked one by one."""
    if not isinstance(index, Binary) or index.op != "floormod":
        return False
    return index.a == Var(name) or bool(blocked_group(index, name))


def blocked_group(index: Expr, name: str) -> int:
    """The group of `name % group % lanes`; 0 for any other index."""
    inner = index.a if isinstance(index, Binary) and index.op == "floormod" else None
    if not isinstance(inner, Binary) or inner.op != "floormod" or inner.a != Var(name):
        return 0
    return int(inner.b.value) if isinstance(inner.b, Const) else 0


def is_lane(index: Expr, item: Iter, lanes: int) -> bool:
    """Whether an index is the place of an iteration in whole blocks of lanes (itself, where there is one)."""
    count = extent_of(item.extent)
    plain = is_lane_of(index, item.var.name) and not blocked_group(index, item.var.name)
    return count % lanes == 0 and (plain or (index == item.var and count == lanes))


def stores_lanes(block: Block, axis: int, lanes: int) -> bool:
    """Whether a block stores whole blocks of lanes along one of its iterations."""
    body = block.body
    return isinstance(body, Store) and is_lane(body.indices[-1], block.iters[axis], lanes)
