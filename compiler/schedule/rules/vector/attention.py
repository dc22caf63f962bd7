"""The rule for attention: scores of a few rows, their softmax and the weighted sum, while they lie in cache.

    parallel (image, head, chunk of rows)
      keys = k in panels                                           in scratch
      for tile of rows
        for panel of keys
          sums = q keys (registers); scores = f(sums, mask)        in scratch, as all that follows
        largest, powers, total = softmax of the scores
        weights = powers / total
        for block of lanes: sums = weights v (registers); output = sums

Rows of scores are whole: for as many keys as `graph/fuse_attention.py` joins they fit a second-level cache,
and nothing has to be scaled again as it would if they came in blocks (online softmax).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.ir import REGISTER, SCRATCH, Expr, Load
from compiler.loops.layout import lanes_last
from compiler.loops.queries import extent_of, variables
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Access, Program, Site
from compiler.schedule.rules.common import SMALL, fuse_all, part_of_steps, strip_mine, unroll_inside
from compiler.schedule.rules.options import beyond, decide, takes_threads, unroll_factors
from compiler.schedule.rules.vector.packing import Panel, place_panel
from compiler.schedule.rules.vector.register_tile import ContractionProblem, register_tiles, uneven
from compiler.schedule.rules.vector.row_nest import fill_row
from compiler.schedule.schedule import Schedule

_BITS = 32
"""Of the sums: tensors in half precision are added up in f32, too."""

_CHUNKS = (1, 2, 4, 8)
"""Into how many chunks the rows of a head may be cut, each with keys of its own in panels."""

_OTHER_CHUNKS = (3, 6, 12, 16)
"""Further numbers of chunks, for search."""

_PACKING = 1.0
"""Cycles for each element of the keys to bring them into panels."""


_MOST_STEPS = 8
"""Steps of a sum that search may write out."""

_LINE = 7.0
"""Cycles in which a line of values comes from the second-level cache where rows lie apart: measured on Zen 4,
1,500 rows 1.5 KB apart; with 3 a line, as tiles for 16 registers have, packing saves a fifth of the time."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The blocks of an attention by name, and its sizes.

    between: the blocks that turn sums into weights, in order. batch: iterations of batch and heads.
    """

    scores: str
    between: tuple[str, ...]
    weighting: str
    batch: int
    rows: int
    keys: int
    depth: int
    width: int

    @property
    def products(self) -> int:
        """Products of both sums."""
        return self.batch * self.rows * self.keys * (self.depth + self.width)


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """rows of a register tile; vectors of keys, and of the output, beside them; chunks of rows."""

    rows: int
    keys: int
    width: int
    chunks: int

    @property
    def value(self) -> tuple[int, ...]:
        """The tile as a decision."""
        return (self.rows, self.keys, self.width, self.chunks)


def attention(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a function that softmax(q k) v makes; False, and no change, for others."""
    found = find_attention(schedule.program)
    if found is None:
        return False
    options = attention_tiles(found, facts)
    options = beyond(options, attention_tiles(found, facts, _OTHER_CHUNKS))
    tile = AttentionTile(*chooser.choose("attention.tile", options))
    return schedule.attempt(lambda copy: _Attention(copy, found, tile, facts, chooser).run())


def find_attention(program: Program) -> Attention | None:
    """The blocks and sizes of an attention; None for functions of another structure."""
    sites = list(program.sites.values())
    sums = [site for site in sites if site.is_store and site.reduce]
    if len(sums) != 4 or not all(site.is_store for site in sites) or sites[0] is not sums[0]:
        return None
    scores, largest, total, weighting = sums
    if any(site.store.buffer.dtype.bits != _BITS for site in sums):
        return None
    batch = len(scores.spatial) - 2
    if batch < 0 or not _is_product(scores, batch) or not _is_product(weighting, batch):
        return None
    rows, keys = (extent_of(item.extent) for item in scores.spatial[batch:])
    width = extent_of(weighting.spatial[-1].extent)
    if min(keys, width) == 1:
        return None
    of_rows = [[extent_of(item.extent) for item in site.spatial] for site in (largest, total)]
    shape = [extent_of(item.extent) for item in scores.spatial]
    if any(own != shape[:-1] for own in of_rows) or extent_of(weighting.reduce[0].extent) != keys:
        return None
    names = [site.name for site in sites]
    between = tuple(names[1 : names.index(weighting.name)])
    depth = extent_of(scores.reduce[0].extent)
    return Attention(scores.name, between, weighting.name, math.prod(shape[:batch]), rows, keys, depth, width)


def _is_product(site: Site, batch: int) -> bool:
    """Whether a block adds a factor of row and step times one of lane and step."""
    found = factors(site.block)
    if found is None or len(site.spatial) != batch + 2 or len(site.reduce) != 1:
        return False
    row, lane = (item.var.name for item in site.spatial[batch:])
    return lane not in variables(found[0]) and row not in variables(found[1])


# ---------------------------------------------------------------- how long it takes


def attention_tiles(found: Attention, facts: TargetFacts, numbers: Sequence[int] = _CHUNKS) -> list[Option]:
    """All tiles with their estimated cycles on one core."""
    lanes = facts.lanes(_BITS)
    scores = _cheapest(found, -(-found.keys // lanes), found.depth, facts, padded=True)
    weighting = _cheapest(found, -(-found.width // lanes), found.keys, facts, padded=False)
    packing = _PACKING * found.batch * found.keys * found.depth
    options = []
    for rows in scores.keys() & weighting.keys():
        for chunks in numbers:
            if -(-found.rows // rows) % chunks:
                continue
            (first, keys), (second, width) = scores[rows], weighting[rows]
            cost = (first + second + packing * chunks) * uneven(found.batch * chunks)
            options.append(Option(AttentionTile(rows, keys, width, chunks).value, cost))
    return sorted(options, key=lambda option: option.value)


def _cheapest(
    found: Attention, vectors: int, steps: int, facts: TargetFacts, *, padded: bool
) -> dict[int, tuple[float, int]]:
    """For each number of rows the cycles and the vectors of the best register tile beside them."""
    best: dict[int, tuple[float, int]] = {}
    for wanted in (1, 2, 3, 4) if padded else (1,):
        count = -(-vectors // wanted) * wanted
        problem = ContractionProblem(
            vectors=count,
            rows=found.rows,
            steps=steps,
            outer=found.batch,
            broadcast=True,
            packed_bytes=0,
            overlap=True,
        )
        for option in register_tiles(problem, facts):
            width, rows, _ = option.value
            if (width == wanted or not padded) and option.cost < best.get(rows, (math.inf, 0))[0]:
                best[rows] = (option.cost, width)
    return best


# ---------------------------------------------------------------- the rule


class _Attention:
    """The steps of the rule, in the order in which they are applied."""

    def __init__(
        self,
        schedule: Schedule,
        found: Attention,
        tile: AttentionTile,
        facts: TargetFacts,
        chooser: Chooser,
    ) -> None:
        self.s, self.found, self.tile, self.facts = schedule, found, tile, facts
        self.chooser = chooser
        self.lanes = facts.lanes(_BITS)
        self.rank = len(schedule.site(found.scores).spatial) - 1

    def run(self) -> None:
        s, found = self.s, self.found
        s.attempt(lambda copy: copy.factor_out(found.weighting))
        keys = self._panels(found.scores, self.tile.keys)
        weights = self._computed(found.weighting, 0)
        queries = self._computed(found.scores, 0)
        panels = [keys, *([self._panels(found.weighting, self.tile.width)] if self._packs_values() else [])]
        first, last = (self._to_registers(name) for name in (found.scores, found.weighting))
        between = [name for name in (*found.between, *weights) if name != first]
        _, keys_axis = self._by_lanes(found.scores, first, self.tile.keys)
        row, width_axis = self._by_lanes(found.weighting, last, self.tile.width)
        around, tile = self._tiles(last, row)
        panel = self._panel(last, width_axis, tile)
        s.compute_at(found.weighting, panel)
        for name in reversed(between):
            s.compute_at(name, tile)
        s.compute_at(first, tile)
        over_keys = self._panel(first, keys_axis, tile)
        s.compute_at(found.scores, over_keys)
        self._accumulate(found.scores, first, over_keys)
        self._accumulate(found.weighting, last, panel)
        for name in queries:
            s.compute_at(name, tile)
        for name in (*between, *queries):
            inside = s.loops(name)[s.loops(name).index(tile) + 1 :]
            fill_row(s, name, inside[0] if self.tile.rows > 1 else tile, self.facts, self.chooser)
        for name in (first, *between):
            self._align(name, self.lanes * (self.tile.keys if name == first else 1))
        for factor in panels:
            place_panel(s, factor, around[-1], "", self.lanes)
        fused = fuse_all(s, around)
        if takes_threads(self.chooser, "attention", guess=found.products >= SMALL):
            s.parallel(fused)

    def _panels(self, block: str, vectors: int) -> Panel:
        """The factor that lanes read, step after step in panels of some vectors."""
        *others, lane, step = self._axes(block, 1)
        copy, buffer = self.s.cache_operand(block, 1, (*others, step, lane), SCRATCH)
        rank = len(others) + 2
        by_panel = lanes_last(rank, rank - 1, vectors * self.lanes)
        self.s.transform_layout(buffer, by_panel.reordered([*range(rank - 2), rank - 1, rank - 2, rank]))
        strip_mine(self.s, copy, rank - 1, self.lanes)
        return Panel(copy, buffer, whole=True)

    def _packs_values(self) -> bool:
        """Whether values are not just read, or come too slowly from where they lie far apart.

        They are read again for each tile of rows, and if the first-level cache does not hold them, a small
        tile computes too little on a line to wait for the next one.
        """
        site = self.s.site(self.found.weighting)
        found = factors(site.block)
        assert found is not None
        value = found[1]
        if not isinstance(value, Load):
            return True
        load = Access(value.buffer, value.indices)
        apart = site.stride(load, site.reduce[0].var.name) != self.found.width
        held = self.found.keys * self.found.width * _BITS // 8 <= self.facts.l1.bytes
        lines = self.tile.width * self.facts.vector_bits / 8 / self.facts.l1.line
        step = self.tile.rows * self.tile.width / self.facts.fma_per_cycle
        guess = apart and not held and step < _LINE * lines and self.tile.rows > 1
        return bool(decide(self.chooser, "attention.values", int(guess), (0, 1)))

    def _align(self, name: str, size: int) -> None:
        """Rows of scores lie so far apart that the last of the parts in which they are stored is whole."""
        store = self.s.site(name).store
        if len(store.indices) > self.rank and extent_of(store.buffer.shape[-1]) == self.found.keys:
            self.s.storage_align(store.buffer.name, len(store.indices) - 2, size)

    def _axes(self, block: str, operand: int) -> tuple[int, ...]:
        """The iterations that a factor depends on."""
        found = factors(self.s.block(block))
        assert found is not None
        used = variables(found[operand])
        return tuple(n for n, item in enumerate(self.s.block(block).iters) if item.var.name in used)

    def _computed(self, block: str, operand: int) -> list[str]:
        """The block that makes a factor ahead, where it is not just read."""
        found = factors(self.s.block(block))
        if found is None or isinstance(found[operand], Load):
            return []
        return [self.s.cache_operand(block, operand, self._axes(block, operand), SCRATCH)[0]]

    def _to_registers(self, name: str) -> str:
        """Let sums grow in registers; returns the block that takes them from there."""
        s, target = self.s, self.s.site(name).target
        after = s.program.readers(target)
        if target in s.program.outputs or len(after) != 1 or after[0].reduce:
            return s.cache_write(name, target, REGISTER)
        s.set_scope(target, REGISTER)
        return after[0].name

    def _by_lanes(self, name: str, reader: str, vectors: int) -> tuple[str, int]:
        """Cut the last axis of sums into panels, and that of the block that takes them.

        Returns its loop over rows, and the number of its iteration over panels.
        """
        s, width = self.s, vectors * self.lanes
        sums, after = s.site(name), s.site(reader)
        rank = len(sums.store.indices)
        taken = next(load for load in after.loads if load.buffer.name == sums.target)
        row, lane = (self._number(after, taken.indices[rank - 2 + n]) for n in range(2))
        loop = s.loops(reader)[row]
        s.transform_layout(sums.target, lanes_last(rank, rank - 1, width))
        strip_mine(s, name, len(sums.spatial) - 1, width)
        strip_mine(s, reader, lane, width)
        return loop, lane

    def _number(self, site: Site, index: Expr) -> int:
        """Which iteration an index is; one of extent 1 where it is a constant."""
        used = variables(index)
        alike = [
            number
            for number, item in enumerate(site.block.iters)
            if (item.var.name in used if used else extent_of(item.extent) == 1)
        ]
        if not alike:
            raise ScheduleError(f"block {site.name} takes its rows in another order")
        return alike[0]

    def _tiles(self, last: str, row: str) -> tuple[list[str], str]:
        """The loops of the result: those around a chunk of rows, and over its tiles."""
        s, rows = self.s, self.tile.rows
        *others, panel, lane = [loop for loop in s.loops(last) if loop != row]
        overlap = self.found.rows % rows and self.tile.chunks == 1  # threads may not write the same rows
        tail = "shift" if overlap else "guard"
        outer, inner = s.split(row, (None, rows), tail=tail)
        chunk, tile = s.split(outer, (self.tile.chunks, None))
        s.reorder(*others, chunk, tile, panel, inner, lane)
        return [*others, chunk], tile

    def _panel(self, reader: str, axis: int, tile: str) -> str:
        """The loop around a register tile: over panels of lanes, or over tiles where there is one panel."""
        s = self.s
        inside = s.loops(reader)[s.loops(reader).index(tile) + 1 :]
        over = variables(s.block(reader).iters[axis].binding)
        panels = [loop for loop in inside if loop in over]
        *rows, lane = [loop for loop in inside if loop not in over]
        vector, lane = s.split(lane, (None, self.lanes))
        s.reorder(*panels, *rows, vector, lane)
        return panels[0] if panels else tile

    def _accumulate(self, name: str, reader: str, panel: str) -> None:
        """A register tile in a panel: sums over all steps, then the block that takes them."""
        s = self.s
        loops = s.loops(name)
        *inner, lane, step = loops[loops.index(panel) + 1 :]
        vector, lane = s.split(lane, (None, self.lanes))
        factors = unroll_factors([extent_of(s.loop(step).extent)], _MOST_STEPS)
        factor = decide(self.chooser, f"{name}.unroll", 1, factors)
        (step,), steps = part_of_steps(s, [step], factor)
        s.reorder(step, *steps, *inner, vector, lane)
        init = s.decompose_reduction(name, step)
        for block in (init, name, reader):
            unroll_inside(s, block, panel, skip=(step,))
