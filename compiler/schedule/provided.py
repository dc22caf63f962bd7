"""What one iteration of a loop makes of a buffer, and which iterations of a consumer it feeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from compiler.core.types import BOOL
from compiler.loops.ir import Const, Expr, Region, Var, const
from compiler.loops.linear import Linear, conjuncts, constant_sum
from compiler.loops.queries import variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.errors import ScheduleError
from compiler.schedule.move import Move, is_narrower
from compiler.schedule.nest import own_conditions
from compiler.schedule.program import Site
from compiler.schedule.regions import (
    Dimension,
    Span,
    covers,
    dimensions,
    is_dense,
    keep_smaller,
    solve,
    within,
)


class Provided:
    """What one iteration of the loop produces, and which iterations of the block it feeds."""

    def __init__(self, move: Move, producers: Sequence[Site]) -> None:
        self.move, self.producers = move, producers
        self.block = move.site.block
        self.reduce = {item.var.name for item in move.site.reduce}
        self.checks: list[Expr] = []
        self.guards: dict[Expr, None] = {}

    def iterations(self) -> tuple[dict[str, Span], list[Expr]]:
        """(spans of the iteration variables, conditions that make them exact)."""
        found: dict[str, Span] = {}
        for region in self.block.reads:
            writers = [s for s in self.producers if s.writes(region.buffer.name)]
            if writers:
                self._one(region, writers, found)
        narrow = {
            name: span
            for name, span in found.items()
            if is_narrower(self.move.site, name, span, self.move.known)
        }
        return narrow, [*self.checks, *self.guards]

    def _one(self, region: Region, writers: Sequence[Site], found: dict[str, Span]) -> None:
        """Take one read into account."""
        move = self.move
        tile = self._tile(region, writers)
        wanted = [
            self._window(begin, length, span, region)
            for begin, length, span in dimensions(region, tile, move.known)
            if within(begin, length, span, move.known)
        ]
        for name, span in solve(wanted, move.site.spatial, move.known).items():
            keep_smaller(found, name, span)
        self.checks += [cond for window in wanted for cond in within(*window, move.known)]

    def _window(self, begin: Linear, length: int, span: Span, region: Region) -> Dimension:
        """One dimension of a read as a condition on spatial variables only."""
        move = self.move
        moving: dict[Expr, int] = {
            a: f for a, f in begin.terms.items() if not variables(a).isdisjoint(self.reduce)
        }
        low, high = move.known.range(Linear(moving, 0))
        fixed = Linear({a: f for a, f in begin.terms.items() if a not in moving}, begin.constant)
        if low == -inf or high == inf:
            raise self._shared_windows(region, span, "unknown")
        reach = length + int(high - low)
        if reach > 1 and not (low + fixed.constant == 0 and _holds_windows(fixed, reach, span)):
            raise self._shared_windows(region, span, str(reach))
        return fixed.plus(constant_sum(int(low))), reach, span

    def _shared_windows(self, region: Region, span: Span, reach: str) -> ScheduleError:
        loop = self.move.loop.var.name
        return self.move.refuse(
            f"it reads windows of {region.buffer.name} that two iterations of {loop} share",
            f"windows of {reach} elements, tiles of {span.extent}",
            "name a loop whose tiles hold whole windows, or use compute_at on the producer",
        )

    def _tile(self, region: Region, writers: Sequence[Site]) -> list[Span]:
        """The box that one iteration of the loop writes: exactly that box, and all of it."""
        move, name, loop = self.move, region.buffer.name, self.move.loop.var.name
        boxes = [move.made(site, name) for site in writers]
        if any(other != boxes[0] for other in boxes[1:]):
            raise move.refuse(
                f"{_names(writers)} write different parts of {name} under {loop}",
                "what one iteration makes is not one box",
                "name a loop around all of them that makes all of the buffer",
            )
        for site in writers:
            if not self._fills(site, name, None):
                raise move.refuse(
                    f"{site.name} makes pieces of {name} under {loop} that are not one box",
                    "the iterations that use them cannot be told apart",
                    "name another loop, or move the block before fusing and splitting",
                )
            self._check_conditions(site, region)
        self._check_complete(region, writers)
        self._guard(region, writers, boxes[0])
        return boxes[0]

    def _guard(self, region: Region, writers: Sequence[Site], tile: Sequence[Span]) -> None:
        """Leave out iterations that make nothing, where the box of what is made does not tell them."""
        moving = {name for span in tile for atom in span.begin.terms for name in variables(atom)}
        guards = [self._conditions_beside(site, moving) for site in writers]
        if any(other != guards[0] for other in guards[1:]):
            raise self.move.refuse(
                f"{_names(writers)} write {region.buffer.name} in different iterations of loops around them",
                "which of them have made what it reads cannot be told from what they make",
                "name a loop outside of those",
            )
        self.guards.update(dict.fromkeys(guards[0]))

    def _conditions_beside(self, site: Site, moving: set[str]) -> list[Expr]:
        """What a block's predicate says about loops around the new place that do not move what it makes."""
        found = ((part, variables(part)) for part in conjuncts(site.block.predicate))
        return [part for part, names in found if names <= self.move.outer_names and not names <= moving]

    def _fills(self, site: Site, buffer: str, fixed: set[str] | None) -> bool:
        inner = self.move.inner_of(site, fixed)
        return all(is_dense(item, site.values, inner, self.move.known) for item in site.writes(buffer))

    def _check_complete(self, region: Region, writers: Sequence[Site]) -> None:
        """All that the block reads of a buffer has to be made under the loop, in some iteration."""
        move, name = self.move, region.buffer.name
        made = move.made(writers[-1], name, set())
        needed = move.read(move.site, name, set(), clipped=False)
        others = [s for s in move.sites.values() if s.writes(name) and s not in writers]
        alone = not others or self._fills(writers[-1], name, set())
        if not alone or not covers(made, needed, move.known):
            raise move.refuse(
                f"{_names(writers)} does not make all of {name} that it reads",
                f"{_names(others) or 'another block'} makes the rest" if others else "a part has no writer",
                "move all blocks that write the buffer under the loop",
            )

    def _check_conditions(self, writer: Site, region: Region) -> None:
        """Where the writer has a predicate, what the block reads has to satisfy it."""
        move = self.move
        conditions = own_conditions(writer, move.outer_names)
        if not conditions and conditions is not None:
            return
        places = _places(writer.writes(region.buffer.name)[0], region, move.known)
        own = own_conditions(move.site, move.outer_names) or []
        for cond in conditions or (const(0, BOOL),):
            mapped = variables(cond) <= places.keys()
            here = move.known.simplify(substitute(cond, places))
            if not mapped or not ((isinstance(here, Const) and here.value) or here in own):
                raise move.refuse(
                    f"{writer.name} runs under a condition that the block does not share",
                    "what is skipped would be used",
                    "transform both blocks in the same way first",
                )


def _names(found: Sequence[Site]) -> str:
    return ", ".join(site.name for site in found)


def _places(write: Region, read: Region, known: Simplifier) -> dict[str, Expr]:
    """What the writer's iteration variables are where it writes what is read."""
    found: dict[str, Expr] = {}
    for target, source in zip(write.begin, read.begin, strict=True):
        value = known.linear(target)
        names = [atom.name for atom in value.terms if isinstance(atom, Var)]
        if len(value.terms) == 1 and names and value.terms[Var(names[0])] == 1:
            found[names[0]] = known.emit(known.linear(source).plus(constant_sum(-value.constant)))
    return found


def _holds_windows(start: Linear, reach: int, span: Span) -> bool:
    """Whether windows at multiples of a step lie in one of the tiles that `span` is one of."""
    if len(start.terms) != 1:
        return False
    ((_, step),) = start.terms.items()
    begin = span.begin
    steps = (span.extent, begin.constant, *begin.terms.values())
    return reach <= step and all(value % step == 0 for value in steps)
