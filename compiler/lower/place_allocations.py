"""Placement of allocations: the innermost statement that contains all accesses of a local buffer.

A buffer that is combined over reduction loops is placed outside of them, unless another block gives it new
values in every iteration. A buffer of scope `global` becomes private to the thread (`scratch`) when its place
lies inside a parallel loop; otherwise its content passes from one loop nest to the next, and it becomes a
workspace parameter: the caller of the kernel provides the memory. Where each outermost loop nest is a launch
of its own, everything that passes between nests is workspace. Workspace parameters stand between inputs and
outputs; the attribute `workspace` counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compiler.core.node import IRNode
from compiler.loops.ir import (
    GLOBAL,
    REGISTER,
    SCRATCH,
    WORKSPACE,
    AtomicUpdate,
    Block,
    Buffer,
    For,
    ForKind,
    Func,
    Seq,
    Stmt,
)
from compiler.loops.queries import reduced_over, variables
from compiler.loops.walk import allocating, replace_buffers, scoped

_Path = tuple[Stmt, ...]


def place_allocations(func: Func, *, launches: bool = False) -> Func:
    """Wrap the body with an `Alloc` for each local buffer; see the module's text for scopes."""
    if not func.allocs:
        return func
    paths = _paths(func)
    places: dict[int, list[Buffer]] = {}
    changes: dict[Buffer, Buffer] = {}
    workspace: list[Buffer] = []
    for buffer in func.allocs:
        if not paths[buffer]:
            continue
        path = _common(paths[buffer])
        between = launches and _is_between(path)
        placed = buffer.replace(scope=GLOBAL) if between else _placed(buffer, path)
        changes[buffer] = placed
        if placed.scope == GLOBAL:
            workspace.append(placed)
        else:
            places.setdefault(id(path[-1]), []).append(placed)
    body = _wrap(func.body, places)
    moved = {old: new for old, new in changes.items() if old is not new}
    attrs = tuple(item for item in func.attrs if item[0] != WORKSPACE)
    if workspace:
        attrs += ((WORKSPACE, len(workspace)),)
    params = (*func.inputs, *workspace, *func.results)
    return func.replace(body=replace_buffers(body, moved), allocs=(), params=params, attrs=attrs)


def _is_between(path: _Path) -> bool:
    """Whether a buffer passes values from one outermost loop nest to the next."""
    return len(path) == 1 and isinstance(path[0], Seq)


def _placed(buffer: Buffer, path: _Path) -> Buffer:
    private = any(isinstance(item, For) and item.kind is ForKind.PARALLEL for item in path[:-1])
    if buffer.scope == GLOBAL and private:
        return buffer.replace(scope=SCRATCH)
    if buffer.scope in (SCRATCH, REGISTER) and not private and _has_parallel(path[-1]):
        return buffer.replace(scope=GLOBAL)  # written by some threads and read by others
    return buffer


def _has_parallel(stmt: Stmt) -> bool:
    return any(isinstance(item, For) and item.kind is ForKind.PARALLEL for item in stmt.walk())


def _paths(func: Func) -> dict[Buffer, list[_Path]]:
    """For every local buffer, the paths (outermost statement first) to its accesses."""
    paths: dict[Buffer, list[_Path]] = {item: [] for item in func.allocs}
    started = _started(func)
    for item, scope in scoped(func.body, closed=_is_leaf):
        if isinstance(item, Buffer) and item in paths:
            paths[item].append(scope.around)
        elif isinstance(item, Block):
            whole = (*scope.around, item)
            for buffer, path in _of_block(item, whole, started):
                if buffer in paths:
                    paths[buffer].append(path)
    return paths


def _of_block(block: Block, whole: _Path, started: dict[Buffer, set[str]]) -> Iterator[tuple[Buffer, _Path]]:
    atomic = any(isinstance(item, AtomicUpdate) for item in block.body.walk())
    for region in block.reads:
        yield region.buffer, whole
    for region in block.writes:
        kept = reduced_over(block)
        if block.init is None and region.buffer in started:
            kept &= started[region.buffer]
        yield region.buffer, whole[:1] if atomic else _above(whole, kept)


def _above(path: _Path, names: set[str]) -> _Path:
    """The path that ends at the outermost loop over one of the variables, or the whole."""
    for depth, stmt in enumerate(path):
        if isinstance(stmt, For) and stmt.var.name in names:
            return path[: depth + 1]
    return path


def _started(func: Func) -> dict[Buffer, set[str]]:
    """Buffers that get new values whatever they held, and the variables that say which elements and when."""
    found: dict[Buffer, set[str]] = {}
    for block in func.blocks():
        before = {region.buffer for region in block.reads}
        deciding = [item.binding for item in block.iters] + ([block.predicate] if block.predicate else [])
        names = {name for expr in deciding for name in variables(expr)}
        for region in block.writes:
            if region.buffer not in before and not block.is_reduction:
                found.setdefault(region.buffer, set()).update(names)
    return found


def _common(paths: Iterable[_Path]) -> _Path:
    """The longest common beginning; it is never empty, because all paths start at the body."""
    first, *others = paths
    length = len(first)
    for other in others:
        length = min(length, len(other))
        while any(first[depth] is not other[depth] for depth in range(length)):
            length -= 1
    return first[:length]


def _wrap(stmt: Stmt, places: dict[int, list[Buffer]]) -> Stmt:
    """Put allocations around the statements they belong to; the same object where there are none."""
    result = stmt if _is_leaf(stmt) else stmt.map_bodies(lambda item: _wrap(item, places))
    return allocating(places.get(id(stmt), []), result)


def _is_leaf(item: IRNode) -> bool:
    """Whether a node is a block that declares all that it does."""
    return isinstance(item, Block) and not _is_compound(item)


def _is_compound(block: Block) -> bool:
    """Whether a block contains loops or blocks of its own."""
    return any(isinstance(item, For | Block) for item in block.body.walk())
