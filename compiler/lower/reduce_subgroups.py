"""Sub-group reduction: a reduction over lanes becomes exchanges between lanes (warp shuffles).

A loop with the annotation LANES reduces what the lanes of a sub-group hold, each an element in its own
memory. Where a loop around it has the annotation, each of its iterations is done by a sub-group of its own:

    for g in 0..8 (lanes = 32)                    for t in 0..256 bound(threadIdx.x)
      for lane in 0..32                             lane[0] = part[t]
        few[g] = 0 at lane == 0               ->    lane[0] += subgroup_shuffle_xor(lane[0], 16); 8; 4; 2; 1
        few[g] += part[g * 32 + lane]               if t % 32 == 0: few[t // 32] = lane[0]

All lanes get the result (CUDA C++ Programming Guide, warp shuffle functions: reduction across a warp): a
variable of each thread is stored by each. Under a condition of the block whole sub-groups exchange, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.diagnostics import BadInputError
from compiler.core.target import TargetFacts
from compiler.loops.annotations import LANES
from compiler.loops.build import COMBINING
from compiler.loops.intrinsics import SHUFFLE_XOR
from compiler.loops.ir import (
    REGISTER,
    Alloc,
    Binary,
    Block,
    Buffer,
    Call,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Iter,
    Load,
    Region,
    Stmt,
    Store,
    Var,
    binary,
    const,
    seq,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import block_regions
from compiler.loops.simplify import substitute
from compiler.loops.walk import Rewriter, with_body
from compiler.lower.insert_barriers import is_shared

_THREAD = "threadIdx.x"


def reduce_subgroups(func: Func, facts: TargetFacts) -> Func:
    """Shuffles in place of loops with the annotation LANES; BadInputError where that cannot be."""
    if not facts.binds_threads:
        return func
    return with_body(func, _ReduceSubgroups(names_in(func.body), facts).visit(func.body))


@dataclass(eq=False)
class _ReduceSubgroups(Rewriter):
    names: set[str]
    facts: TargetFacts

    def visit_for(self, item: For) -> Stmt:
        lanes = dict(item.annotations).get(LANES)
        if lanes is None:
            return self.parts(item)
        inner = _below(item)
        found, groups = (inner, item) if isinstance(inner, For) else (item, None)
        count = 1 if groups is None else int_of(groups.extent)
        if count is None or int_of(found.extent) != lanes:
            raise _refused(item, f"there is no loop of {lanes} iterations")
        self._check_size(item, lanes, count)
        return self._exchange(found, groups, lanes, count)

    def _check_size(self, loop: For, lanes: int, groups: int) -> None:
        sizes = self.facts.subgroup_sizes
        if SHUFFLE_XOR not in self.facts.intrinsics or len(sizes) != 1:
            raise _refused(loop, "the device has no shuffles, or sub-groups of no certain size")
        if lanes & (lanes - 1) or lanes > sizes[0]:
            raise _refused(loop, f"{lanes} is no power of two up to {sizes[0]}, the lanes of a sub-group")
        if lanes * groups % sizes[0]:
            raise _refused(loop, f"{lanes * groups} threads do not fill sub-groups of {sizes[0]} lanes")

    def _check_condition(self, loop: For, block: Block, groups: For | None, lanes: int) -> None:
        """Lanes of a sub-group exchange all together: what a condition says is the same for them."""
        used = frozenset[str]() if block.predicate is None else variables(block.predicate)
        apart = groups is not None and lanes < self.facts.subgroup_sizes[0] and groups.var.name in used
        if apart or loop.var.name in used:
            raise _refused(loop, f"only some lanes of a sub-group have a part in block {block.name}")

    def _exchange(self, loop: For, groups: For | None, lanes: int, count: int) -> Stmt:
        block = _below(loop)
        if not isinstance(block, Block):
            raise _refused(loop, "there is more than one block in it")
        store, value, op = _update(loop, block)
        self._check_condition(loop, block, groups, lanes)
        thread = Var(fresh(f"{loop.var.name}_thread", self.names))
        number = Var(fresh(f"v{thread.name}", self.names))
        places: dict[str, Expr] = {loop.var.name: const(0)}
        if groups is not None:
            places[groups.var.name] = thread // lanes
        kept = [item for item in block.iters if item.kind == "spatial"]
        iters = [item.replace(binding=substitute(item.binding, places)) for item in kept]
        iters.append(Iter(number, const(lanes * count), "spatial", thread))
        terms: dict[str, Expr] = {
            item.var.name: const(0) if int_of(item.extent) == 1 else number % lanes
            for item in block.iters
            if item.kind == "reduce"
        }
        own = Buffer(fresh("lane", self.names), store.buffer.dtype, (const(1),), REGISTER)
        body = _butterfly(own, substitute(value, terms), op, lanes)
        last: Stmt = Store(store.buffer, store.indices, Load(own, (const(0),)))
        if is_shared(store.buffer):
            last = If((number % lanes).eq(0), last)
        whole = Alloc(own, seq(*body, last))
        reads, writes = (_without(own, items) for items in block_regions(whole))
        where = None if block.predicate is None else substitute(block.predicate, places)
        combined = Block(block.name, tuple(iters), reads, writes, whole, predicate=where)
        return For(thread, const(lanes * count), combined, ForKind.BOUND, _THREAD)


def _without(own: Buffer, regions: Sequence[Region]) -> tuple[Region, ...]:
    return tuple(item for item in regions if item.buffer != own)


def _butterfly(own: Buffer, value: Expr, op: str, lanes: int) -> list[Stmt]:
    """The value of each lane into `own`, combined with those of the lanes 1/2, 1/4, ... of all lanes away."""
    at = (const(0),)
    mine = Load(own, at)
    steps: list[Stmt] = [Store(own, at, value)]
    step = lanes // 2
    while step:
        other = Call(SHUFFLE_XOR, (mine, const(step)), own.dtype)
        steps.append(Store(own, at, binary(op, mine, other)))
        step //= 2
    return steps


def _below(loop: For) -> Stmt:
    """What a loop holds, past loops of one iteration."""
    stmt = loop.body
    while isinstance(stmt, For) and int_of(stmt.extent) == 1:
        stmt = substitute(stmt.body, {stmt.var.name: const(0)})
    return stmt


def _update(loop: For, block: Block) -> tuple[Store, Expr, str]:
    """The store of a block `C = C op value` that reduces over the loop alone: (store, value, op)."""
    reduce = [item.binding for item in block.iters if item.kind == "reduce" and int_of(item.extent) != 1]
    if block.init is None or reduce != [loop.var]:
        raise _refused(loop, f"block {block.name} does more than one whole reduction over it")
    body = block.body
    if isinstance(body, Store) and body.mask is None and isinstance(body.value, Binary):
        own = Load(body.buffer, body.indices)
        a, b = body.value.a, body.value.b
        if body.value.op in COMBINING and own in (a, b) and a != b:
            return body, b if a == own else a, body.value.op
    raise _refused(loop, f"block {block.name} is not of the form C = C op x")


def _refused(loop: For, why: str) -> BadInputError:
    return BadInputError(
        f"the reduction over {loop.var.name} cannot be made by shuffles",
        where=f"loop {loop.var.name}",
        why=why,
        hint="remove the note `lanes`, or split the reduction into loops of a sub-group's lanes",
    )
