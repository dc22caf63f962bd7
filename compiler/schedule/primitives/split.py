"""Split a loop, and what to do with the part that does not fill a whole tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import mul
from typing import ClassVar

from compiler.loops.ir import Block, Const, Expr, For, ForKind, Func, Region, Stmt, Var, const, minimum, seq
from compiler.loops.queries import variables
from compiler.loops.simplify import Simplifier, simplify
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Fresh, Program, inner_loops, outer_blocks, reduce_blocks, trip_count
from compiler.schedule.races import carried_value
from compiler.schedule.rewriting import add_predicate, duplicate, map_blocks, nest, rebind, replace_statements

TAILS = ("guard", "partition", "shift", "roundup", "mask")


@dataclass(frozen=True, slots=True)
class Split(Primitive[tuple[str, ...]]):
    """Split one loop into nested loops.

    loop: the loop. factors: extents of the new loops, outermost first; one may be None and follows from the
    others. tail: what happens where the extent is no multiple: `guard` puts a predicate on the blocks,
    `partition` makes a second loop for the rest, `shift` lets the last tile overlap the one before, `roundup`
    runs over the padded extent, `mask` is a guard that vectorisation turns into a lane mask.
    Outputs: the new loops, outermost first, then the loop of the rest, if there is one.
    rewrite: for i in n: B(i) -> for i_0 in n/f: for i_1 in f: B(i_0 * f + i_1)
    Halide, TVM: split.
    """

    name: ClassVar[str] = "split"

    loop: str
    factors: tuple[int | None, ...]
    tail: str = "guard"

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        loop = program.loop(self.loop, self.name)
        check_serial(loop, self.name)
        factors, fresh = self._factors(loop), program.namer()
        parts = tuple(
            For(Var(fresh(f"{self.loop}_{number}")), factor, loop.body)
            for number, factor in enumerate(factors)
        )
        known = program.bounds_at(self.loop)
        rest = _rest(loop.extent, factors)
        new, extra = _rewrite(self.tail if rest else "exact", Tail(self, program, fresh, loop, parts, known))
        return replace_statements(program.func, {self.loop: new}), (
            *(part.var.name for part in parts),
            *extra,
        )

    def _factors(self, loop: For) -> tuple[Expr, ...]:
        if self.tail not in TAILS:
            raise self.refuse(f"unknown tail {self.tail!r}", f"one of {', '.join(TAILS)}", "")
        if len(self.factors) < 2 or self.factors.count(None) > 1:
            raise self.refuse("needs at least two factors, at most one of them open", f"got {self.factors}")
        given = [factor for factor in self.factors if factor is not None]
        if min(given) < 1:
            raise self.refuse("factors have to be positive", f"got {self.factors}")
        product = prod(given)
        if len(given) == len(self.factors):
            self._check_covers(loop, product)
        elif not isinstance(loop.extent, Const) and (self.tail != "guard" or self.factors[0] is not None):
            trip_count(loop, self.name)
        open_factor = simplify((loop.extent + (product - 1)) // product)
        return tuple(open_factor if factor is None else const(factor) for factor in self.factors)

    def _check_covers(self, loop: For, product: int) -> None:
        extent = trip_count(loop, self.name)
        if product < extent:
            raise self.refuse(
                "the factors do not cover the loop",
                f"{' * '.join(map(str, self.factors))} = {product} < {extent}",
                "leave one factor open (None)",
            )


def check_serial(loop: For, asked: str) -> None:
    """Refuse a loop that is already parallel, vectorised, unrolled or bound."""
    if loop.kind is not ForKind.SERIAL:
        raise ScheduleError(
            f"{asked}: loop {loop.var.name} is already {loop.tag or loop.kind.value}",
            where=f"loop {loop.var.name}",
            why="the kind of a loop is fixed last",
            hint=f"{asked} before making the loop {loop.kind.value}",
        )


def _rest(extent: Expr, factors: tuple[Expr, ...]) -> bool:
    """Whether the new loops run more often than the old one did."""
    return simplify(reduce(mul, factors, const(1)) - extent) != const(0)


@dataclass(frozen=True, slots=True)
class Tail:
    """One split to be carried out: the program, the loop, the new loops, the ranges known around it."""

    step: Split
    program: Program
    fresh: Fresh
    loop: For
    parts: tuple[For, ...]
    around: dict[str, tuple[int, int]]

    @property
    def name(self) -> str:
        return self.loop.var.name

    @property
    def known(self) -> dict[str, tuple[int, int]]:
        """Ranges of all variables inside the new loops."""
        known = dict(self.around)
        for part in self.parts:
            last = Simplifier(known).interval(part.extent)[1]
            if last is not None:
                known[part.var.name] = (0, max(last - 1, 0))
        return known

    @property
    def extent(self) -> int:
        return trip_count(self.loop, f"split {self.name}")

    @property
    def tile(self) -> int:
        """Iterations of the loops inside the outermost new one."""
        return prod(trip_count(part, f"split {self.name}") for part in self.parts[1:])

    def inside(self) -> Expr:
        """The index within the outermost new loop."""
        total: Expr = const(0)
        for part in self.parts[1:]:
            total = total * part.extent + part.var
        return total

    def index(self) -> Expr:
        """The old loop variable in terms of the new ones."""
        inner = reduce(mul, (part.extent for part in self.parts[1:]), const(1))
        return self.parts[0].var * inner + self.inside()

    def body(self, index: Expr) -> Stmt:
        """The old body with the old variable replaced."""
        return rebind(self.loop.body, {self.name: index}, self.known)


def _rewrite(tail: str, split: Tail) -> tuple[Stmt, tuple[str, ...]]:
    if tail == "partition":
        return _partition(split)
    if tail == "exact":
        return _nest(split, split.body(split.index())), ()
    if tail == "shift":
        return _shift(split), ()
    if tail == "roundup":
        return _roundup(split), ()
    return _guard(split, masked=tail == "mask"), ()


def _nest(split: Tail, body: Stmt) -> Stmt:
    outer, *inner = split.parts
    return outer.replace(body=nest(inner, body), annotations=split.loop.annotations)


def _guard(split: Tail, *, masked: bool) -> Stmt:
    cond = simplify(split.index().lt(split.loop.extent), split.known)
    body = split.body(split.index())
    if masked:
        *outer, last = split.parts
        split = replace(split, parts=(*outer, last.replace(annotations=(("tail", "mask"),))))
    return _nest(split, body if isinstance(cond, Const) else add_predicate(body, cond))


def _partition(split: Tail) -> tuple[Stmt, tuple[str, ...]]:
    whole, rest = divmod(split.extent, split.tile)
    if whole == 0:
        raise split.step.refuse(
            "partition leaves no main part",
            f"the extent {split.extent} is smaller than one tile of {split.tile}",
            "use a smaller factor or the tail guard",
        )
    parts = (split.parts[0].replace(extent=const(whole)), *split.parts[1:])
    main = replace(split, parts=parts)
    first = _nest(main, main.body(main.index()))
    if rest == 0:
        return first, ()
    var = Var(split.fresh(f"{split.name}_rest"))
    copy = duplicate(split.loop.body, split.fresh)
    known = {**split.around, var.name: (0, rest - 1)}
    second = rebind(copy, {split.name: var + whole * split.tile}, known)
    inside = Simplifier({**known, **split.program.bounds(inner_loops(second))})
    second = map_blocks(second, lambda block: _without_start(block, inside))
    return seq(first, For(var, const(rest), second, annotations=split.loop.annotations)), (var.name,)


def _without_start(block: Block, known: Simplifier) -> Block:
    """The rest of a reduction goes on with what the main part began: its init would never run."""
    goes_on = any(item.kind == "reduce" and known.prove(item.binding.gt(0)) for item in block.iters)
    return block.replace(init=None) if goes_on and block.init is not None else block


def _shift(split: Tail) -> Stmt:
    if split.extent < split.tile:
        raise split.step.refuse(
            "the last tile cannot be shifted",
            f"the extent {split.extent} is smaller than one tile of {split.tile}",
            "use a smaller factor or the tail guard",
        )
    _check_repeatable(split)
    start = minimum(split.parts[0].var * split.tile, split.extent - split.tile)
    outer = -(-split.extent // split.tile)
    parts = (split.parts[0].replace(extent=const(outer)), *split.parts[1:])
    shifted = replace(split, parts=parts)
    return _nest(shifted, shifted.body(start + split.inside()))


def _check_repeatable(split: Tail) -> None:
    """Refuse unless running an iteration twice gives what running it once gives."""
    hint = "use the tail guard or partition"
    reducing = reduce_blocks(split.loop)
    if reducing:
        raise split.step.refuse(
            "iterations may not run twice", f"block {reducing[0].name} reduces over the loop", hint
        )
    inside = {loop.var.name for loop in inner_loops(split.loop)} | {
        dim.var.name for dim in split.program.func.dims
    }
    for block in outer_blocks(split.loop):
        sums = [variables(item.binding) for item in block.iters if item.kind == "reduce"]
        outside = sorted(frozenset().union(*sums) - inside)
        if outside:
            why = f"block {block.name} reduces over {outside[0]}, outside: the overlap would count twice"
            raise split.step.refuse(
                "iterations may not run twice", why, f"{hint}, or move {outside[0]} inside"
            )
    found = carried_value(split.program, split.loop)
    if found is not None:
        why = f"block {found[0].name} goes on with what is in {found[1].name}, which the loop changes"
        raise split.step.refuse("iterations may not run twice", why, hint)


def _roundup(split: Tail) -> Stmt:
    body = split.body(split.index())
    reducing = reduce_blocks(split.loop)
    if reducing:
        raise split.step.refuse(
            "the padded part would be reduced, too",
            f"block {reducing[0].name} reduces over the loop",
            "pad the operands with the neutral element first (pad_einsum), or use the tail guard",
        )
    known = Simplifier({**split.known, **split.program.bounds(inner_loops(split.loop.body))})
    return _nest(split, map_blocks(body, lambda block: _widen(split, block, known)))


def _widen(split: Tail, block: Block, known: Simplifier) -> Block:
    """Let the iteration variables of a block cover the padded loop, where its buffers allow that."""
    iters, inner, widened = [], Simplifier(), False
    for item in block.iters:
        last = known.interval(item.binding)[1]
        old = known.interval(item.extent)[1]
        if last is None or old is None:
            raise split.step.refuse(
                "an index is unbounded", f"{item.var.name} of block {block.name}", "use guard"
            )
        wider = last >= old
        if wider and not all(_uses(region, item.var.name) for region in block.writes):
            why = f"{item.var.name} of block {block.name} picks no element of what it writes"
            raise split.step.refuse("the padded part would repeat work", why, "use the tail guard")
        widened = widened or wider
        iters.append(item.replace(extent=const(max(last + 1, old))))
        inner = inner.bind(item.var.name, 0, max(last + 1, old) - 1)
    if not widened:
        why = f"the work of block {block.name} does not depend on the loop"
        raise split.step.refuse("the padded part would repeat work", why, "use the tail guard")
    _check_room(split, block, inner)
    return block.replace(iters=tuple(iters))


def _uses(region: Region, name: str) -> bool:
    return any(name in variables(begin) for begin in region.begin)


def _check_room(split: Tail, block: Block, known: Simplifier) -> None:
    for region in (*block.reads, *block.writes):
        for axis, (begin, extent, size) in enumerate(
            zip(region.begin, region.extent, region.buffer.shape, strict=True)
        ):
            low, high = known.interval(begin + extent - 1)[1], known.interval(size)[0]
            first = known.interval(begin)[0]
            if low is None or high is None or first is None or low >= high or first < 0:
                raise split.step.refuse(
                    "the padded part lies outside of a buffer",
                    f"block {block.name} would access {region.buffer.name} up to {low} on axis {axis}, "
                    f"which has {high} elements",
                    "pad the buffer first (transform_layout), or use the tail guard",
                )
    for region in block.writes:
        others = [item.name for item in split.program.writers(region.buffer.name) if item.name != block.name]
        if others or region.buffer in split.program.func.params:
            who = f"block {others[0]} writes it, too" if others else "it is visible outside"
            raise split.step.refuse(
                f"the padding of {region.buffer.name} may not be written", who, "use the tail guard"
            )
