"""How long a function will take, before it is scheduled: what forms are ranked by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from compiler.core.target import TargetFacts
from compiler.loops.annotations import stage_of
from compiler.loops.ir import Binary, Block, Call, Expr, Func, Load, Select, Store, Unary
from compiler.loops.layout import Layout
from compiler.loops.queries import iterations, static_shape
from compiler.schedule.program import Program, Site
from compiler.schedule.rules.im2col import columns_of
from compiler.schedule.rules.threads.launch_cost import LAUNCH_SECONDS
from compiler.schedule.rules.threads.winograd_tile import share_of_direct
from compiler.schedule.rules.vector.contraction import cycles
from compiler.schedule.rules.vector.winograd import estimate as winograd_seconds


def form_seconds(works: Sequence[tuple[Func, Mapping[str, Layout]]], facts: TargetFacts) -> list[float]:
    """Estimated seconds of each form of an operator, of which the first is the default.

    On threads most forms are told apart by their arithmetic and bytes; Winograd in one launch needs more than
    that, and is estimated by its share of what the default form takes.
    """
    found: list[float] = []
    for func, layouts in works:
        share = share_of_direct(func, facts) if facts.binds_threads else None
        if share is not None and any(layout.maps for layout in layouts.values()):
            share = math.inf  # it reads and writes images row by row
        found.append(seconds(func, layouts, facts) if share is None else share * found[0])
    return found


def seconds(func: Func, layouts: Mapping[str, Layout], facts: TargetFacts) -> float:
    """Estimated seconds on one core or unit: max(cycles of arithmetic / clock, bytes / bandwidth)."""
    if facts.binds_threads:
        return _thread_seconds(func, facts)
    known = winograd_seconds(func, layouts, facts)
    if known is not None:
        return known
    traffic = sum(math.prod(static_shape(item)) * item.dtype.bits / 8 for item in func.params)
    inlined, program = {item.name for item in func.allocs}, Program(func)
    busy = sum(
        _block_cycles(site, facts)
        for site in program.sites.values()
        if site.block.is_reduction or not site.is_store or site.target not in inlined
    )
    unsure = _UNSURE if columns_of(program) is not None else 1.0
    return max(busy / facts.hertz, traffic / facts.bandwidth) * unsure


_UNSURE = 1.25
"""How much longer the form im2col is taken to take than its tiles: places that go on from line to line are
computed, and have a register each. Only a search takes it, which asks first what is cheaper."""


_STAGES = 4.0
"""How much longer the stages of a form take than their work: no rule for threads joins them yet."""


def _thread_seconds(func: Func, facts: TargetFacts) -> float:
    """Estimated seconds of one unit on a device that binds threads: its share of all, and the launches."""
    units = facts.limit("units") or 1
    written = {item.name for item in func.params}
    kept = [
        site
        for site in Program(func).sites.values()
        if site.block.is_reduction or (site.is_store and site.target in written) or stage_of(site.block)
    ]
    work = sum(_thread_cycles(site.block, facts) for site in kept) / facts.hertz
    made = {site.target for site in kept if site.is_store}
    passed = [item for item in func.allocs if item.name in made]
    traffic = sum(math.prod(static_shape(b)) * b.dtype.bits / 8 for b in (*func.params, *passed))
    stages = _STAGES if any(stage_of(site.block) for site in kept) else 1.0
    return max(work, traffic / facts.bandwidth) / units * stages + LAUNCH_SECONDS * max(1, len(passed))


def _thread_cycles(block: Block, facts: TargetFacts) -> float:
    work = _work(block) / 2
    return iterations(block.iters) * max(work, 1.0) / (facts.fma_per_cycle * facts.lanes(32))


def _block_cycles(site: Site, facts: TargetFacts) -> float:
    """Cycles for one block: by its register tile where it is a contraction, else by its operations."""
    tiled = cycles(site, facts) if site.is_store else None
    if tiled is not None:
        return tiled
    work = _work(site.block) / facts.fma_per_cycle
    return iterations(site.block.iters) * max(work, 1.0) / facts.lanes(32)


def _work(block: Block) -> int:
    """Arithmetic for an iteration of a block."""
    return _operations(block.body.value) if isinstance(block.body, Store) else 1


def _operations(expr: Expr) -> int:
    """Arithmetic per element; of alternatives the longer one."""
    if isinstance(expr, Load):
        return 0
    if isinstance(expr, Select):
        return max(_operations(expr.a), _operations(expr.b)) + 1
    own = 1 if isinstance(expr, Binary | Unary | Call) else 0
    return own + sum(_operations(child) for child in expr.children() if isinstance(child, Expr))
