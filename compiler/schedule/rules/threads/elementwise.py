"""The rule for work without sums on threads: a thread for each element, or for each run of a wide access.

blockIdx.x, threadIdx.x (all axes)
  vector (elements side by side)
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.target import TargetFacts
from compiler.loops.ir import REGISTER, Block, Cast, Expr, Iter, Load, Select, Var, binary, const
from compiler.loops.queries import extent_of, iterations, static_shape, variables
from compiler.loops.simplify import Simplifier
from compiler.schedule.chooser import Chooser
from compiler.schedule.program import Access, Site
from compiler.schedule.rules.common import fuse_all, intermediates
from compiler.schedule.rules.options import decide
from compiler.schedule.rules.threads.common import bind_grid, most_threads, units
from compiler.schedule.schedule import Schedule


def elementwise_kernel(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> None:
    """Spread all loops of a block without sums over threads; one thread runs what cannot be spread."""
    loops = schedule.loops(name)
    if not loops:
        return
    shared = intermediates(schedule, name)
    for other in reversed(shared):
        schedule.attempt(_compute_once, other, loops[-1])
    lanes = 1 if shared else _vector_lanes(schedule.site(name), facts, chooser)
    if not schedule.attempt(_spread, name, loops, lanes, facts, chooser) and lanes > 1:
        schedule.attempt(_spread, name, loops, 1, facts, chooser)


def _compute_once(schedule: Schedule, name: str, loop: str) -> None:
    """A value that is read several times is made once by each thread, and stays in a register."""
    schedule.compute_at(name, loop)
    schedule.set_scope(schedule.site(name).target, REGISTER)


def _spread(
    schedule: Schedule, name: str, loops: Sequence[str], lanes: int, facts: TargetFacts, chooser: Chooser
) -> None:
    loop = fuse_all(schedule, loops)
    if lanes > 1:
        loop, vector = schedule.split(loop, (None, lanes))
        schedule.vectorize(vector)
    bind_grid(schedule, loop, name, facts, chooser)


def _vector_lanes(work: Site, facts: TargetFacts, chooser: Chooser) -> int:
    """Neighbours that one thread takes: 1 where they do not lie side by side everywhere."""
    block = work.block
    if not work.is_store or not block.iters or work.reduce or _converts(block):
        return 1
    count = iterations(block.iters)
    lanes, fitting = widest((work.store, *work.loads), facts), list[int]()
    while lanes > 1:
        fitting += [lanes] if _wide(work, block.iters, lanes) else []
        lanes //= 2
    busy = [lanes for lanes in fitting if count >= lanes * units(facts) * most_threads(facts)]
    return decide(chooser, f"{work.name}.vector", busy[0] if busy else 1, (1, *fitting))


def _wide(work: Site, iters: tuple[Iter, ...], lanes: int) -> bool:
    """Whether every access is a whole aligned vector, or one element for all lanes."""
    accesses = (work.store, *work.loads)
    if all(_whole(access, iters) for access in accesses if access.uses):
        return iterations(iters) % lanes == 0
    last = iters[-1]
    name = last.var.name
    if extent_of(last.extent) % lanes or asks(work, name) or _computes_with(work.body.value, name):
        return False
    known = Simplifier(work.bounds)
    return all(aligned_run(access, last.var, lanes, known) for access in accesses)


def _whole(access: Access, iters: tuple[Iter, ...]) -> bool:
    """Whether an access is the element at the place of the iteration, in the same order."""
    indices = tuple(item.var for item in iters)
    return access.indices == indices and static_shape(access.buffer) == tuple(
        extent_of(i.extent) for i in iters
    )


def widest(accesses: Sequence[Access], facts: TargetFacts) -> int:
    """Elements of the widest type that a vector has room for."""
    return facts.lanes(max(access.buffer.dtype.bits for access in accesses))


def asks(work: Site, name: str) -> bool:
    """Whether conditions of the value depend on a variable."""
    return any(name in variables(item.cond) for item in work.body.walk() if isinstance(item, Select))


def _computes_with(expr: Expr, name: str) -> bool:
    if isinstance(expr, Var):
        return expr.name == name
    if isinstance(expr, Load):
        return False
    return any(_computes_with(child, name) for child in expr.children() if isinstance(child, Expr))


def _converts(block: Block) -> bool:
    """Whether elements of several sizes meet; such work stays with one element a thread."""
    return any(isinstance(item, Cast) for item in block.body.walk())


def aligned_run(access: Access, var: Var, lanes: int, known: Simplifier) -> bool:
    """Whether neighbours along `var` lie side by side, and each run begins at a multiple of `lanes`."""
    if var.name not in access.uses:
        return True
    place: Expr = const(0)
    for index, extent in zip(access.indices, static_shape(access.buffer), strict=True):
        place = binary("add", binary("mul", place, extent), index)
    total = known.linear(known.simplify(place))
    if total.coefficient(var.name) != 1 or total.constant % lanes:
        return False
    others = {atom: factor for atom, factor in total.terms.items() if atom != var}
    return all(factor % lanes == 0 and var.name not in variables(atom) for atom, factor in others.items())
