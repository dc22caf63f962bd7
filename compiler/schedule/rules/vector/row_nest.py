"""The rule for rows that are reduced and then filled: softmax and normalisations.

Every sum, largest element and intermediate of a row is made just before what reads it, while the row lies in
the first-level cache:

    parallel (rows)
      total = sum over the row                                   lanes along the row
      scale = f(total, ...)
      output[row, ...] = g(scale, ...)                           lanes along the row
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.core.target import TargetFacts
from compiler.loops.annotations import stage_of
from compiler.loops.ir import REGISTER, Const, Var
from compiler.loops.queries import extent_of, iterations
from compiler.schedule.chooser import Chooser
from compiler.schedule.program import Site
from compiler.schedule.rules.common import SMALL, fuse_all, part_of_steps
from compiler.schedule.rules.options import decide, takes_threads, unroll_factors
from compiler.schedule.schedule import Schedule


def row_nest(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule reductions over rows and the block that fills the rows; False for other functions."""
    sites = list(schedule.program.sites.values())
    *before, last = sites
    rank = _rank_of_rows(before, last, schedule.program.outputs)
    names = [item.name for item in before]
    return rank > 0 and schedule.attempt(_join, names, last.name, rank, facts, chooser)


def _rank_of_rows(before: list[Site], last: Site, outputs: frozenset[str]) -> int:
    """How many of the last block's iterations number its rows; 0 where the function is of another kind."""
    if not last.is_store or last.reduce or not any(item.reduce for item in before):
        return 0
    if any(not item.is_store or stage_of(item.block) or item.target in outputs for item in before):
        return 0
    reductions = {item.target: len(item.spatial) for item in before if item.reduce}
    rank = min(reductions.values())
    numbered = all(_by_row(item, reductions, rank) for item in (*before, last))
    return rank if numbered and rank < len(last.spatial) else 0


def _by_row(site: Site, reductions: Mapping[str, int], rank: int) -> bool:
    """Whether a block reads the reductions of its own row, which its first iterations number."""
    read = [load.indices[:rank] for load in site.loads if load.buffer.name in reductions]
    return all(
        index == item.var or (extent_of(item.extent) == 1 and isinstance(index, Const))
        for indices in read
        for item, index in zip(site.spatial, indices, strict=False)
    )


def _join(
    schedule: Schedule, before: list[str], last: str, rank: int, facts: TargetFacts, chooser: Chooser
) -> None:
    size = iterations(schedule.site(last).spatial)
    rows = schedule.loops(last)[:rank]
    for name in reversed(before):
        schedule.compute_at(name, rows[-1])
    for name in before:
        if schedule.loops(name)[-1] == rows[-1] or schedule.site(name).reduce:
            schedule.set_scope(schedule.site(name).target, REGISTER)
    for name in (*before, last):
        fill_row(schedule, name, rows[-1], facts, chooser)
    around = fuse_all(schedule, rows)
    if takes_threads(chooser, "row_nest", guess=size >= SMALL):
        schedule.parallel(around)


_MOST_VECTORS = 8
"""Vectors of a row that search may take at a time."""


def fill_row(schedule: Schedule, name: str, row: str, facts: TargetFacts, chooser: Chooser) -> None:
    """Lanes along the row in a block below its loop."""
    loops = schedule.loops(name)
    inner = list(loops[loops.index(row) + 1 :])
    site = schedule.site(name)
    if not inner:
        return
    if site.reduce:
        schedule.decompose_reduction(name, inner[0])
    lanes = facts.lanes(site.store.buffer.dtype.bits)
    extent = extent_of(schedule.loop(inner[-1]).extent)
    if extent >= lanes and _side_by_side(schedule.site(name)):
        tail = "guard" if extent % lanes == 0 else "mask"
        outer, vector = schedule.split(inner[-1], (None, lanes), tail=tail)
        factors = unroll_factors([extent_of(schedule.loop(outer).extent)], _MOST_VECTORS)
        for part in part_of_steps(schedule, [outer], decide(chooser, f"{name}.row_vectors", 1, factors))[1]:
            schedule.unroll(part)
        schedule.vectorize(vector)


def _side_by_side(site: Site) -> bool:
    """Whether neighbours along the last iteration are neighbours in memory, wherever it is used."""
    name = site.block.iters[-1].var.name
    touching = [item for item in (*site.loads, site.store) if name in item.uses]
    return all(item.indices and item.indices[-1] == Var(name) for item in touching)
