"""Primitives that overlap iterations of a loop: software_pipeline, vthread."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import (
    Block,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    Indexed,
    Iter,
    Region,
    Seq,
    Stmt,
    Var,
    const,
    seq,
    statements,
)
from compiler.loops.linear import Linear
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.loops.walk import AccessRewriter
from compiler.schedule.layout_changes import with_layouts
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Fresh, Program, Site, outer_blocks, ranges, trip_count
from compiler.schedule.regions import Span, covers, hulls
from compiler.schedule.rewriting import (
    add_predicate,
    duplicate,
    map_statements,
    rebind,
    replace_statements,
    swap_buffer,
)


@dataclass(frozen=True, slots=True)
class SoftwarePipeline(Primitive[tuple[str, ...]]):
    """Run the statements of a loop for different iterations at the same time.

    loop: a serial loop over several statements. stages: for each statement how many iterations it lags
    behind; the first stage is 0. What an early stage writes and a later one reads has to be a local buffer
    that one iteration fills for itself; it becomes a circular buffer with room for all iterations under way.
    order: the numbers of the statements as they follow each other in the new loop. guarded: the loop runs as
    often as before, and drains itself: its early stages do nothing in the last iterations, under a condition,
    in place of copies of the late ones.
    Outputs: the blocks in front of and behind the loop that fill and drain the pipeline.
    rewrite: for i in n: P(i); C(i) -> P(0); (for i in n - 1: P(i + 1); C(i)); C(n - 1)
    TVM: software pipeline annotations.
    """

    name: ClassVar[str] = "software_pipeline"

    loop: str
    stages: tuple[int, ...]
    order: tuple[int, ...] = ()
    guarded: bool = False

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        loop = program.loop(self.loop, self.name)
        order = self._order(program, loop)
        count, depth = trip_count(loop, self.name), max(self.stages)
        if count <= depth:
            raise self.refuse(
                f"it has {count} iterations for {depth + 1} stages",
                "the pipeline would never be full",
                f"at most {count} stages",
            )
        func = _made_circular(program.func, loop, self._buffers(program, loop), program.namer())
        program = Program(func)
        fresh = program.namer()
        loop = program.loop(self.loop, self.name)
        steps = self._steps(loop)
        rounds = count if self.guarded else count - depth
        known = {**program.bounds_at(self.loop), **ranges([loop.replace(extent=const(rounds))])}

        def at(number: int, iteration: Expr) -> Stmt:
            return rebind(steps[number], {self.loop: iteration}, known)

        own, made_for = self._own(program, loop), list[Buffer]()

        def copies(times: Sequence[int]) -> Iterator[Stmt]:
            for time in times:
                again: dict[IRNode, IRNode] = {item: item.replace(name=fresh(item.name)) for item in own}
                made_for.extend(item for item in again.values() if isinstance(item, Buffer))
                for number in order:
                    if 0 <= time - self.stages[number] < count:
                        copy = duplicate(at(number, const(time - self.stages[number])), fresh)
                        yield rewrite_nodes(copy, again.get)

        def turn(number: int) -> Stmt:
            """A statement in the new loop: for the iteration that is as far ahead as its stage allows."""
            ahead = depth - self.stages[number]
            new = at(number, loop.var + ahead)
            return add_predicate(new, loop.var.lt(count - ahead)) if self.guarded and ahead else new

        steady = seq(*(turn(number) for number in order))
        front = list(copies(range(depth)))
        back = [] if self.guarded else list(copies(range(count, count + depth)))
        new = seq(*front, loop.replace(extent=const(rounds), body=steady), *back)
        made = [item.name for part in (*front, *back) for item in outer_blocks(part)]
        used = {item for part in (*front, *back) for item in part.walk() if isinstance(item, Buffer)}
        func = func.replace(allocs=(*func.allocs, *(item for item in made_for if item in used)))
        body = map_statements(func.body, lambda item: new if item is loop else None)
        return func.replace(body=body), tuple(made)

    def _steps(self, loop: For) -> tuple[Stmt, ...]:
        steps = loop.body.stmts if isinstance(loop.body, Seq) else (loop.body,)
        if loop.kind is not ForKind.SERIAL:
            raise self.refuse(
                f"it is already {loop.kind.value}", "its iterations have no order", "pipeline a serial loop"
            )
        if len(steps) != len(self.stages) or min(self.stages, default=1) != 0 or max(self.stages) < 1:
            raise self.refuse(
                f"stages {self.stages} do not fit its {len(steps)} statements",
                "each statement needs a stage, the smallest is 0, the largest at least 1",
                "compute_at or cache_read bring a statement into the loop",
            )
        return steps

    def _order(self, program: Program, loop: For) -> tuple[int, ...]:
        """The statements in the order of the new loop."""
        steps = self._steps(loop)
        numbers = tuple(range(len(steps)))
        order = self.order or numbers
        if tuple(sorted(order)) != numbers:
            raise self.refuse(
                f"{order} is no order of its {len(numbers)} statements", "each comes once", "leave it out"
            )
        users = [{block.name for block in outer_blocks(step)} for step in steps]
        for name, sites_of, _ in _touched(program, self._stage_of(loop)):
            mine = [n for n in numbers if users[n] & {site.name for site in sites_of}]
            for a, b in itertools.combinations(mine, 2):
                if order.index(a) > order.index(b) and self.stages[a] >= self.stages[b]:
                    raise self.refuse(
                        f"statement {b} cannot come before statement {a}",
                        f"both use {name}, in stages {self.stages[b]} and {self.stages[a]}",
                        "reorder statements whose later one lags behind",
                    )
        return order

    def _stage_of(self, loop: For) -> dict[str, int]:
        """The stage of each block."""
        pairs = zip(self._steps(loop), self.stages, strict=True)
        return {block.name: stage for step, stage in pairs for block in outer_blocks(step)}

    def _buffers(self, program: Program, loop: For) -> list[_Circular]:
        """The buffers between stages; refuses what a pipeline would break."""
        stage_of = self._stage_of(loop)
        return [
            self._circular(program, loop, name, users, stage_of, outside)
            for name, users, outside in _touched(program, stage_of)
            if len({stage_of[s.name] for s in users}) > 1
        ]

    def _own(self, program: Program, loop: For) -> list[Buffer]:
        """Local buffers of one stage that each iteration fills for itself: copies of it have their own."""
        known, outer = self._known(program, loop)
        stage_of, found = self._stage_of(loop), []
        for name, users, outside in _touched(program, stage_of):
            if outside or name in program.outputs or len({stage_of[s.name] for s in users}) > 1:
                continue
            if not _made_and_missed(users, name, outer, known)[1]:
                found.append(program.func.buffer(name))
        return found

    def _known(self, program: Program, loop: For) -> tuple[Simplifier, set[str]]:
        """What is known of the variables under the loop, and the names of those around its statements."""
        inside = [item for item in statements(loop) if isinstance(item, For)]
        outer = {item.var.name for item in program.loops_around(self.loop)} | {self.loop}
        return Simplifier({**program.bounds_at(self.loop), **ranges(inside)}), outer

    def _circular(
        self,
        program: Program,
        loop: For,
        name: str,
        users: Sequence[Site],
        stage_of: Mapping[str, int],
        outside: Sequence[str],
    ) -> _Circular:
        first = {stage_of[s.name] for s in users if s.writes(name)}
        if len(first) != 1 or min(stage_of[s.name] for s in users) < min(first):
            raise self.refuse(
                f"{name} is written in one stage and written or read in an earlier one",
                f"by {', '.join(s.name for s in users)}",
                "give statements that depend on each other in both directions the same stage",
            )
        if outside or name in program.outputs:
            raise self.refuse(
                f"{name} is used outside of the loop, too",
                f"by {', '.join(outside) or 'the caller'}",
                "use cache_read or cache_write to get a buffer that only lives in the loop",
            )
        known, outer = self._known(program, loop)
        made, missed = _made_and_missed(users, name, outer, known)
        if missed:
            raise self.refuse(
                f"{missed[0].name} reads parts of {name} that other iterations make",
                "an iteration has to make all that it uses",
                "compute the whole region under the loop (compute_at)",
            )
        depth = max(stage_of[s.name] for s in users) - min(first) + 1
        return _circular_of(program.func.buffer(name), made, self.loop, depth)


@dataclass(frozen=True, slots=True)
class _Circular:
    """How a buffer becomes a circular buffer.

    dim: the dimension that moves on with the loop, taken modulo `size`; None for a new first dimension with
    `size` versions. A size of 0 leaves the buffer as it is.
    """

    buffer: Buffer
    dim: int | None
    size: int

    def put(self, items: tuple[Expr, ...], new: Expr) -> tuple[Expr, ...]:
        """Indices or extents of the buffer with a new one for the dimension."""
        if self.dim is None:
            return (new, *items)
        return (*items[: self.dim], new, *items[self.dim + 1 :])


def _touched(program: Program, inside: Mapping[str, int]) -> Iterator[tuple[str, list[Site], list[str]]]:
    """What some blocks write, in order of names: the buffer, who of them uses it, and who else does."""
    own = [program.sites[name] for name in inside]
    for name in sorted({region.buffer.name for site in own for region in site.block.writes}):
        outside = [s.name for s in program.sites.values() if s.name not in inside and s.uses(name)]
        yield name, [s for s in own if s.uses(name)], outside


def _spans(
    users: Sequence[Site], name: str, fixed: set[str], known: Simplifier, *, write: bool
) -> list[Span | None]:
    return hulls(site.box(name, site.moving(fixed, known), known, write=write) for site in users)


def _made_and_missed(
    users: Sequence[Site], name: str, fixed: set[str], known: Simplifier
) -> tuple[list[Span | None], list[Site]]:
    """The box that is made of a buffer, and those who use more than that, as far as is known."""
    made = _spans([s for s in users if s.writes(name)], name, fixed, known, write=True)
    complete = [item for item in made if item is not None]
    missed = [
        site
        for site in users
        if site.reads(name)
        and not (
            len(complete) == len(made)
            and covers(complete, _spans([site], name, fixed, known, write=False), known)
        )
    ]
    return made, missed


def _circular_of(buffer: Buffer, made: Sequence[Span | None], loop: str, depth: int) -> _Circular:
    """The circular buffer for `depth` iterations under way."""
    for dim, span in enumerate(made):
        assert span is not None
        step = span.begin.coefficient(loop)
        if step > 0 and _only_linear(span.begin, loop):
            size = (depth - 1) * step + span.extent
            extent = int_of(buffer.shape[dim])
            return _Circular(buffer, dim, size if extent is not None and size < extent else 0)
    return _Circular(buffer, None, depth)


def _made_circular(func: Func, loop: For, found: Sequence[_Circular], fresh: Fresh) -> Func:
    for circular in found:
        if circular.size == 0:
            continue
        old = circular.buffer
        strides = old.strides
        if strides and circular.dim is None:
            strides = (strides[0] * old.shape[0], *strides)
        new = old.replace(shape=circular.put(old.shape, const(circular.size)), strides=strides)
        change = _CircularAccesses(circular, new, loop, fresh)
        func = with_layouts(swap_buffer(func, new), new.name, ())
        func = func.replace(body=change.visit(func.body))
    return func


class _CircularAccesses(AccessRewriter):
    """Rewrites the accesses of a buffer that becomes a circular buffer."""

    def __init__(self, circular: _Circular, new: Buffer, loop: For, fresh: Fresh) -> None:
        super().__init__()
        self.circular, self.new, self.loop, self.fresh = circular, new, loop, fresh
        self.version: Expr | None = None

    def place(self, item: Indexed | Region) -> IRNode:
        if item.buffer.name != self.new.name:
            return item
        if isinstance(item, Region):
            return self._box(item)
        indices = self.circular.put(item.indices, self._turn(item.indices))
        return item.replace(buffer=self.new, indices=indices)

    def visit_block(self, item: Block) -> Stmt:
        if not any(isinstance(part, Buffer) and part.name == self.new.name for part in item.walk()):
            return item
        before = self.version
        if self.circular.dim is None and before is None:
            item = self._counted(item)
        done = self.parts(item)
        self.version = before
        return done

    def _counted(self, block: Block) -> Block:
        """The block with one more iteration variable: the iteration of the pipelined loop."""
        name = self.loop.var.name
        reduced = any(item.kind == "reduce" and name in variables(item.binding) for item in block.iters)
        var = Var(self.fresh(f"v{name}_{block.name}"))
        self.version = var % self.circular.size
        kind = "reduce" if reduced else "spatial"
        extra = Iter(var, self.loop.extent, kind, self.loop.var)
        at = next((n for n, item in enumerate(block.iters) if item.kind == "reduce"), len(block.iters))
        return block.replace(iters=(*block.iters[:at], extra, *block.iters[at:]))

    def _turn(self, indices: tuple[Expr, ...]) -> Expr:
        """The index along the dimension: which version, or the old one modulo the size."""
        if self.circular.dim is None:
            assert self.version is not None
            return self.version
        return self.known.simplify(indices[self.circular.dim] % self.circular.size)

    def _box(self, region: Region) -> Region:
        dim, put, begin, length = self.circular.dim, self.circular.put, self._turn(region.begin), const(1)
        if dim is not None and int_of(region.extent[dim]) != 1:
            begin, length = const(0), const(self.circular.size)
        return Region(self.new, put(region.begin, begin), put(region.extent, length))


# ---------------------------------------------------------------- vthread


@dataclass(frozen=True, slots=True)
class VThread(Primitive[tuple[str, ...]]):
    """Interleave the iterations of a loop: all of them do a step before any does the next.

    loop: a serial loop whose iterations are independent. It is moved inside all loops under it, once for each
    block, and unrolled, so that independent work hides latency.
    Outputs: the loops that it became, in program order.
    rewrite: for v in 2: (A(v); for i: B(v, i)) -> (for v in 2: A(v)); for i: (for v in 2: B(v, i))
    TVM: vthread.
    """

    name: ClassVar[str] = "vthread"

    loop: str

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        loop = program.loop(self.loop, self.name)
        if loop.kind is not ForKind.SERIAL:
            raise self.refuse(
                f"it is already {loop.kind.value}", "the kind of a loop is fixed last", "take a serial loop"
            )
        self._check(program, loop)
        made: list[str] = []
        fresh = program.namer()

        def push(item: Stmt) -> Stmt:
            if isinstance(item, Seq):
                return seq(*(push(part) for part in item.stmts))
            if isinstance(item, For) and item.kind is not ForKind.VECTORIZED:
                return item.replace(body=push(item.body))
            var = loop.var if not made else Var(fresh(self.loop))
            made.append(var.name)
            body = substitute(item, {self.loop: var})
            return loop.replace(var=var, body=body, kind=ForKind.UNROLLED)

        new = push(loop.body)
        return replace_statements(program.func, {self.loop: new}), tuple(made)

    def _check(self, program: Program, loop: For) -> None:
        for item in statements(loop.body):
            if isinstance(item, For) and self.loop in variables(item.extent):
                raise self.refuse(
                    f"the extent of {item.var.name} depends on it",
                    "the loops cannot change places",
                    "split with a guard",
                )
        inside = [s for s in program.sites.values() if s.under(self.loop)]
        for site in inside:
            if any(i.kind == "reduce" and self.loop in variables(i.binding) for i in site.block.iters):
                raise self.refuse(
                    f"{site.name} reduces over it",
                    "its iterations add to the same elements",
                    "use rfactor first",
                )
        outer = {item.var.name for item in program.loops_around(self.loop)}
        known = Simplifier(
            {**program.bounds_at(self.loop), **ranges([loop, *(x for s in inside for x in s.loops)])}
        )
        for writer in inside:
            for region in writer.block.writes:
                name = region.buffer.name
                for other in (s for s in inside if s.uses(name)):
                    if not _apart(writer, other, name, outer | {self.loop}, self.loop, known):
                        raise self.refuse(
                            f"its iterations share elements of {name}",
                            f"{writer.name} writes what {other.name} of another iteration uses",
                            "take a loop that tiles all dimensions of what is under it",
                        )


def _apart(writer: Site, other: Site, name: str, fixed: set[str], loop: str, known: Simplifier) -> bool:
    """Whether different iterations of the loop touch different elements of a buffer in the two blocks."""
    mine = _spans([writer], name, fixed, known, write=True)
    for write, used in ((True, other.writes(name)), (False, other.reads(name))):
        theirs = _spans([other], name, fixed, known, write=write)
        if used and not any(_tiles(a, b, loop) for a, b in zip(mine, theirs, strict=True)):
            return False
    return True


def _tiles(a: Span | None, b: Span | None, loop: str) -> bool:
    """Whether two spans move with the loop in steps at least as long as both together."""
    if a is None or b is None:
        return False
    step = a.begin.coefficient(loop)
    apart = b.begin.plus(a.begin, -1)
    if step == 0 or apart.terms or not _only_linear(a.begin, loop):
        return False
    first, last = min(0, apart.constant), max(a.extent, apart.constant + b.extent)
    return last - first <= abs(step)


def _only_linear(value: Linear, loop: str) -> bool:
    return all(isinstance(atom, Var) or loop not in variables(atom) for atom in value.terms)
