"""Dependences between iterations: whether a loop may run in parallel, and whether loops may change places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

from compiler.loops.ir import (
    GLOBAL,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Region,
    Var,
    const,
)
from compiler.loops.linear import is_division, single
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.errors import ScheduleError
from compiler.schedule.injectivity import IterDomain, determined, is_injective
from compiler.schedule.own_values import finds_its_own
from compiler.schedule.program import (
    Program,
    inner_loops,
    iter_kinds,
    outer_blocks,
    reads_itself,
    reduce_blocks,
)
from compiler.schedule.regions import Inner, Span, box, covers, hull, limits_of, relax, wraps


def check_independent(
    asked: str, program: Program, loop: For, *, private: bool = True, common: str = ""
) -> None:
    """Refuse when iterations of a loop touch the same elements.

    private: buffers that only live inside the loop do not count, because each thread gets its own; but those
    of the scope `common` do.
    """
    name = loop.var.name
    below = outer_blocks(loop)
    if loop.extent == const(1):
        return
    known = _known_below(program, loop)
    for block in below:
        for region in block.writes:
            own = private and region.buffer.scope != common
            if own and _lives_inside(program, region.buffer, below):
                continue
            part, inside = _as_far_as_it_runs(block, loop, known)
            why = _overlap(program, block, part, inside) or _shared(program, block, region, part, inside)
            if why:
                raise ScheduleError(
                    f"{asked}: iterations of {name} write the same elements of {region.buffer.name}",
                    where=f"loop {name}, block {block.name}",
                    why=why,
                    hint="choose another loop",
                )

    def is_own(buffer: Buffer) -> bool:
        """Whether each iteration has a copy of a buffer, and makes all that it reads of it."""
        local = private and buffer.scope != common and _lives_inside(program, buffer, below)
        return local and finds_its_own(program, loop, buffer, below, known)

    pair = _carried(below, _Scope(program, (loop,), known), is_own)
    if pair is not None:
        raise ScheduleError(
            f"{asked}: an iteration of {name} needs what another one makes",
            where=f"loop {name}",
            why=f"block {pair[1].name} uses more of {pair[2].name} than block {pair[0].name} made in the "
            "same iteration",
            hint="choose a loop around one block only",
        )


def _as_far_as_it_runs(block: Block, loop: For, known: Simplifier) -> tuple[For, Simplifier]:
    """The loop up to where the condition of a block ends its work, and what is known there."""
    extents = {loop.var.name: int_of(loop.extent) or 1 << 30}
    limited = limits_of(block.predicate, extents, known).extents[loop.var.name]
    if limited == extents[loop.var.name]:
        return loop, known
    return loop.replace(extent=const(limited)), known.bind(loop.var.name, 0, limited - 1)


def check_schedule(func: Func) -> None:
    """Refuse a finished schedule in which a loop is parallel, vectorised or bound although it may not be.

    Each primitive checks this for its own loop when it is applied; moving a block out of such a loop
    afterwards may make a buffer shared that was private. To be asked once, when nothing more will change.
    """
    program = Program(func)
    for loop in program.loops.values():
        if loop.kind in _SIMULTANEOUS and not reduce_blocks(loop):  # lanes of a sum are added up at the end
            # Nothing makes room in global memory for a copy of each block or thread.
            common = GLOBAL if loop.kind is ForKind.BOUND else ""
            check_independent("schedule", program, loop, private=not is_virtual(loop.tag), common=common)


_SIMULTANEOUS = frozenset({ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.BOUND})


def is_virtual(tag: str | None) -> bool:
    """Whether a tag stands for virtual threads: interleaved iterations of one thread, with its memory."""
    return tag is not None and tag.startswith("vthread")


def check_reorder(asked: str, program: Program, chain: Sequence[For], order: Sequence[For]) -> None:
    """Refuse a new order of directly nested loops in which a block would see other values."""
    below = outer_blocks(chain[-1])
    old = {loop.var.name: number for number, loop in enumerate(chain)}
    new = {loop.var.name: number for number, loop in enumerate(order)}
    for block, outer, inner in product(below, chain, chain):
        first, second = outer.var.name, inner.var.name
        moved = old[first] > old[second] and new[first] < new[second]
        if moved and "reduce" in iter_kinds(block, first) and "reduce" not in iter_kinds(block, second):
            _check_sum_once(asked, program, block, first, inner)
    if len(below) == 1:
        return
    scope = _Scope(program, tuple(chain), _known_below(program, chain[0]))
    pair = _carried(below, scope) or _reduced_and_used(below, chain)
    if pair is not None:
        raise ScheduleError(
            f"{asked}: blocks {pair[0].name} and {pair[1].name} depend on the order of the loops",
            where=f"loops {', '.join(loop.var.name for loop in chain)}",
            why=f"{pair[1].name} uses {pair[2].name} before or beyond what the same iteration of "
            f"{pair[0].name} made",
            hint="reorder before placing other blocks there",
        )


def _check_sum_once(asked: str, program: Program, block: Block, outer: str, inner: For) -> None:
    why = repeated_work(program, block, inner)
    if why:
        raise ScheduleError(
            f"{asked}: reduce loop {outer} cannot go outside of {inner.var.name}",
            where=f"block {block.name}",
            why=f"{why}, so their sums would be added more than once",
            hint=f"keep {outer} inside {inner.var.name}",
        )


def repeated_work(program: Program, block: Block, loop: For) -> str:
    """Why two iterations of a loop may do the same work of a block; empty when they cannot."""
    if loop.extent == const(1):
        return ""
    known = _known_below(program, loop)
    shared = (_shared(program, block, region, loop, known) for region in block.writes)
    return _overlap(program, block, loop, known) or next((why for why in shared if why), "")


def unfinished_use(program: Program, block: Block, loop: For) -> tuple[Block, Buffer] | None:
    """Another block under a loop that minds whether the sums of `block` are all started before the loop.

    Harmless are blocks that touch other elements, and blocks that read what is just finished.
    """
    below = outer_blocks(loop)
    known = _known_below(program, loop)
    around = program.loops_around(block.name)
    for other in below:
        if other.name == block.name:
            continue
        theirs = program.loops_around(other.name)
        common = tuple(item for item in around[around.index(loop) :] if item in theirs)
        scope = _Scope(program, common, known)
        behind = below.index(other) > below.index(block)
        for made, used in _conflicts(block, other):
            if scope.disjoint((block, made), (other, used)):
                continue
            if used in other.writes or not behind or not _covers((block, made), (other, used), scope):
                return other, made.buffer
    return None


def _covers(maker: tuple[Block, Region], user: tuple[Block, Region], scope: _Scope) -> bool:
    """Whether one iteration of the loops makes all that another access in it uses."""
    made = scope.box(*maker)
    known = [span for span in made if span is not None]
    whole = len(known) == len(made) and not scope.wraps(*maker)
    return whole and covers(known, scope.box(*user), scope.known)


def carried_value(program: Program, loop: For) -> tuple[Block, Buffer] | None:
    """A block under a loop that reads what an earlier run of the same iteration may have changed.

    None says that running an iteration twice gives what running it once gives.
    """
    below = outer_blocks(loop)
    scope = _Scope(program, (loop,), _known_below(program, loop))
    written = {region.buffer.name for block in below for region in block.writes}
    for number, block in enumerate(below):
        used = [region for region in block.reads if region.buffer.name in written]
        used += [region for region in block.writes if reads_itself(block, region.buffer.name)]
        for region in used:
            if not any(_starts(maker, (block, region), scope) for maker in below[:number]):
                return block, region.buffer
    return None


def _starts(maker: Block, user: tuple[Block, Region], scope: _Scope) -> bool:
    """Whether a block sets, without looking at old values, all that a later one uses in an iteration."""
    name = user[1].buffer.name
    if reads_itself(maker, name) or any(region.buffer.name == name for region in maker.reads):
        return False
    return any(made.buffer.name == name and _covers((maker, made), user, scope) for made in maker.writes)


def _known_below(program: Program, loop: For) -> Simplifier:
    return Simplifier({**program.bounds_at(loop.var.name), **program.bounds(inner_loops(loop))})


def _lives_inside(program: Program, buffer: Buffer, below: Sequence[Block]) -> bool:
    """Whether all that touches a local buffer is among the given blocks (or inside them)."""
    users = (site for site in program.sites.values() if site.uses(buffer.name))
    return buffer in program.func.allocs and all(
        site.block in below or any(item in below for item in program.path(site.name)) for site in users
    )


def _loops_inside(program: Program, block: Block, loop: For, *, included: bool = False) -> Inner:
    """The loops around a block that are inside of a loop, or of which it is the outermost."""
    around = program.loops_around(block.name)
    first = [item.var.name for item in around].index(loop.var.name) + (not included)
    return Inner({item.var.name: int_of(item.extent) or 1 << 30 for item in around[first:]})


def _overlap(program: Program, block: Block, loop: For, known: Simplifier) -> str:
    """Why two iterations of a loop may do the same work of a block."""
    name = loop.var.name
    places = [(item.binding, 1) for item in block.iters]
    used = [(binding, length) for binding, length in places if name in variables(binding)]
    if not used:
        return f"the work of block {block.name} does not depend on {name}"
    if any(item.kind == "spatial" and name in _in_extrema(item.binding) for item in block.iters):
        return f"tiles of {name} overlap (tail shift)"
    inner = _loops_inside(program, block, loop)
    return "" if _told_by(places, block, name, inner, known) else _overlap_of_spans(used, loop, inner, known)


def _in_extrema(expr: Expr) -> frozenset[str]:
    """Variables inside a minimum or maximum, as the tail `shift` makes them: tiles of these overlap."""
    extrema = (part for part in expr.walk() if isinstance(part, Binary) and part.op in {"min", "max"})
    return frozenset(name for part in extrema for name in variables(part))


def _told_by(
    places: Sequence[tuple[Expr, int]], block: Block, name: str, inner: Inner, known: Simplifier
) -> bool:
    """Whether a loop's iteration follows from places, each so many elements long, or from digits of a sum."""
    used = [begin for begin, _ in places if name in variables(begin)]
    below = IterDomain(block.predicate, frozenset({name, *inner.extents}), known)
    return _is_fused_index(name, used, inner, known) or Var(name) in determined(below, places)


def _shared(program: Program, block: Block, region: Region, loop: For, known: Simplifier) -> str:
    """Why different work of a block in two iterations of a loop may end up in the same elements."""
    moving = {item.var.name for item in block.iters if loop.var.name in variables(item.binding)}
    spatial = {item.var.name for item in block.iters if item.kind == "spatial"}
    plain = {begin.name for begin in region.begin if isinstance(begin, Var)}
    if moving & spatial <= plain and all(extent == const(1) for extent in region.extent):
        return ""
    if is_injective(block, region, frozenset(moving & spatial)):
        return ""
    values = {item.var.name: item.binding for item in block.iters}
    inner = _loops_inside(program, block, loop)
    places = [
        (substitute(begin, values), int_of(extent) or 1 << 30)
        for begin, extent in zip(region.begin, region.extent, strict=True)
    ]
    told = _told_by(places, block, loop.var.name, inner, known)
    return "" if told else _overlap_of_spans(places, loop, inner, known)


def _overlap_of_spans(places: Sequence[tuple[Expr, int]], loop: For, inner: Inner, known: Simplifier) -> str:
    name = loop.var.name
    atoms: dict[Expr, None] = {}
    for binding, length in places:
        span = relax(known.linear(binding), inner, known)
        if span is None:
            return f"the index {name} is used in is not a sum"
        for atom, factor in span.begin.terms.items():
            if name not in variables(atom):
                continue
            if abs(factor) < span.extent + length - 1 or _in_extrema(atom):
                return f"neighbouring iterations of {name} overlap"
            if isinstance(atom, Var):
                return ""
            atoms[atom] = None
    return _dropped_digits(name, atoms, loop, known)


def _is_fused_index(name: str, bindings: Sequence[Expr], inner: Inner, known: Simplifier) -> bool:
    """Whether the bindings are the digits of one sum, and that sum differs between iterations of a loop."""
    forms = [known.linear(binding) for binding in bindings]
    atoms = [atom for form in forms for atom in form.terms]
    bases: set[Expr] = set()
    for atom in atoms:
        while is_division(atom, "floordiv") or is_division(atom, "floormod"):
            atom = atom.a
        bases.add(atom)
    if len(bases) != 1 or any(len(form.terms) != 1 for form in forms):
        return False
    total = known.linear(bases.pop())
    low, high = known.range(total)
    span = relax(total, inner, known)
    whole = _combinations(atoms, known) >= high - low + 1
    return whole and span is not None and abs(span.begin.coefficient(name)) >= span.extent


def _combinations(atoms: Iterable[Expr], known: Simplifier) -> float:
    """How many values atoms have together at most."""
    ranges = (known.range(single(atom)) for atom in atoms)
    return prod(high - low + 1 for low, high in ranges)


def _dropped_digits(name: str, atoms: dict[Expr, None], loop: For, known: Simplifier) -> str:
    """Whether quotients and remainders of a variable tell all its values apart."""
    extent = loop.extent.value if isinstance(loop.extent, Const) else inf
    return "" if _combinations(atoms, known) >= extent else f"the work depends on a part of {name} only"


@dataclass(frozen=True, slots=True)
class _Scope:
    """Nested loops whose iterations are compared, and what is known inside them."""

    program: Program
    loops: tuple[For, ...]
    known: Simplifier

    def box(self, block: Block, region: Region, *, relaxed: bool = False) -> list[Span | None]:
        """What a block touches in one iteration of all the loops, or, relaxed, in all of their iterations."""
        inner = self._inner(block, relaxed=relaxed)
        return box(region, {item.var.name: item.binding for item in block.iters}, inner, self.known)

    def wraps(self, block: Block, region: Region) -> bool:
        """Whether a block goes around a circular buffer in an iteration, but leaves holes in its box."""
        values = {item.var.name: item.binding for item in block.iters}
        inner = self._inner(block, relaxed=False)
        sums = (self.known.linear(substitute(begin, values)) for begin in region.begin)
        return any(wraps(atom, inner, self.known) for value in sums for atom in value.terms)

    def _inner(self, block: Block, *, relaxed: bool) -> Inner:
        loop = self.loops[0] if relaxed else self.loops[-1]
        return _loops_inside(self.program, block, loop, included=relaxed)

    def disjoint(self, first: tuple[Block, Region], second: tuple[Block, Region]) -> bool:
        """Whether two accesses never meet, in whatever iterations of the loops."""
        spans = zip(self.box(*first, relaxed=True), self.box(*second, relaxed=True), strict=True)
        return any(_disjoint(a, b) for a, b in spans)


def _carried(
    below: Sequence[Block], scope: _Scope, is_own: Callable[[Buffer], bool] = lambda _: False
) -> tuple[Block, Block, Buffer] | None:
    """Two blocks and a buffer through which an iteration of the loops may depend on another one.

    is_own: asked last, as it may take long, whether a buffer passes nothing on from one to the next.
    """
    known: dict[str, bool] = {}
    for number, first in enumerate(below):
        for second in below[number + 1 :]:
            for made, used in _conflicts(first, second):
                buffer = made.buffer
                if _harmless((first, made), (second, used), scope):
                    continue
                if buffer.name not in known:
                    known[buffer.name] = is_own(buffer)
                if not known[buffer.name]:
                    return first, second, buffer
    return None


def _conflicts(first: Block, second: Block) -> list[tuple[Region, Region]]:
    """Pairs of regions of the same buffer that two blocks touch, at least one of them writing."""
    writes = [(a, b) for a in first.writes for b in (*second.reads, *second.writes)]
    reads = [(a, b) for a in first.reads for b in second.writes]
    return [(a, b) for a, b in (*writes, *reads) if a.buffer.name == b.buffer.name]


def _harmless(first: tuple[Block, Region], second: tuple[Block, Region], scope: _Scope) -> bool:
    """Whether two accesses meet never, or within one iteration only, or the first makes all anew."""
    if scope.disjoint(first, second):
        return True
    if first[1] in first[0].writes and _covers(first, second, scope):
        return True
    made, used = scope.box(*first), scope.box(*second)
    return all(_told_apart(loop, made, used, scope.known) for loop in scope.loops)


def _disjoint(a: Span | None, b: Span | None) -> bool:
    if a is None or b is None:
        return False
    apart = b.begin.plus(a.begin, -1)
    return not apart.terms and (apart.constant >= a.extent or -apart.constant >= b.extent)


def _told_apart(
    loop: For, made: Sequence[Span | None], used: Sequence[Span | None], known: Simplifier
) -> bool:
    """Whether two boxes of different iterations of a loop never meet."""
    name = loop.var.name
    atoms: dict[Expr, None] = {}
    for a, b in zip(made, used, strict=True):
        both = hull(a, b)
        if both is not None:
            for atom, factor in both.begin.terms.items():
                if name in variables(atom) and abs(factor) >= both.extent and not _in_extrema(atom):
                    atoms[atom] = None
    return Var(name) in atoms or (bool(atoms) and not _dropped_digits(name, atoms, loop, known))


def _reduced_and_used(below: Sequence[Block], chain: Sequence[For]) -> tuple[Block, Block, Buffer] | None:
    """A block that reduces over one of the loops while another one uses its result."""
    for block in below:
        if not any("reduce" in iter_kinds(block, loop.var.name) for loop in chain):
            continue
        for other in below:
            if other is not block:
                for a, _ in (*_conflicts(block, other), *_conflicts(other, block)):
                    return block, other, a.buffer
    return None
