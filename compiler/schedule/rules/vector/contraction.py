"""The rule for reductions with reuse: convolutions, matrix products, pooling.

One structure covers them all. A spatial axis gives the vector lanes, `kt` vectors of it and `mt` rows of
another spatial axis make a register tile; all reduction loops run inside, the epilogue follows while the tile
is in registers. Where a whole row axis leaves registers free (images of 7 x 7), the tile takes several lines
of it, so that the weights are read less often:

    parallel (outer spatial axes, k_outer, ...)
      for m_outer
        tile = 0
        for reduce...
          tile[m_tile, k_tile, lane] += ...
        output[...] = epilogue(tile)

Weights are constants, so they are repacked into exactly the order in which the tile reads them. Where they
come from memory and an image has only a few tiles to read them again, the reduction is cut into chunks: sums
lie in scratch, and while all tiles work on one chunk of the weights, which stays in the first-level cache,
the next one is fetched:

    parallel (image, k_outer)
      sums = 0
      for chunk
        for m_outer
          tile = sums[m_outer ...]
          for reduce... in chunk
            tile[m_tile, k_tile, lane] += ...
          sums[m_outer ...] = tile
      output[...] = epilogue(sums)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from compiler.core.capabilities import MASKED_MEMORY
from compiler.core.target import TargetFacts
from compiler.loops.annotations import AHEAD, PARTITION, PREFETCH
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import CONSTANT, REGISTER, SCRATCH, Expr, Iter, Var
from compiler.loops.layout import lanes_last
from compiler.loops.queries import extent_of, iterations, variables
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.program import Access, Site
from compiler.schedule.rules.common import (
    SMALL,
    fuse_all,
    is_lane_of,
    lanes_innermost,
    lone_dim,
    part_of_steps,
    split_iteration,
    strip_mine,
    unroll_inside,
)
from compiler.schedule.rules.options import (
    beyond,
    decide,
    later_places,
    shares_of,
    takes_threads,
    unroll_factors,
)
from compiler.schedule.rules.vector.packing import (
    Panel,
    dot_cycles,
    lanes_factor,
    lay_out_panel,
    pack,
    packing_cycles,
    partial_cycles,
    place_panel,
    stride_in_place,
)
from compiler.schedule.rules.vector.register_tile import (
    ContractionProblem,
    RegisterTile,
    chunk_options,
    fetches_ahead,
    has_shorter_tile,
    larger_chunks,
    larger_tiles,
    outer_orders,
    register_tiles,
    uneven,
)
from compiler.schedule.rules.vector.roles import Roles, find_roles, problem_of
from compiler.schedule.schedule import Schedule

# ---------------------------------------------------------------- how long it takes


def cycles(block: Site, facts: TargetFacts) -> float | None:
    """Estimated cycles of a reduction on one core; None when the rule does not fit."""
    roles = find_roles(block) if block.reduce else None
    return None if roles is None else _least(block, roles, facts)


# ---------------------------------------------------------------- the rule


def contraction(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule the reduction block `name` and its epilogue; False when the structure does not fit."""
    block = schedule.site(name)
    if not block.is_store or not block.reduce:
        return False
    epilogue = schedule.program.readers(block.target)
    if len(epilogue) > 1 or any(_repeats(reader, block.target) for reader in epilogue):
        return False
    panel = _packed_factor(schedule, name, facts, chooser)
    block = schedule.site(name)
    roles = find_roles(block)
    if roles is None:
        return False
    lanes = facts.lanes(block.store.buffer.dtype.bits)
    _Contraction(schedule, name, block, roles, lanes, facts, chooser, panel).run(
        epilogue[0].name if epilogue else None
    )
    return True


_AS_THEY_LIE, _PACKED, _AS_DOTS = 0, 1, 2
"""Decisions for the factor that lanes read: in place, from a panel; or lanes along the reduction."""


def _packed_factor(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> Panel | None:
    """The panel of a product of computed tensors, if there is one: of a whole factor, or of one step."""
    block = schedule.site(name)
    factor = lanes_factor(block)
    if factor is None:
        return None
    packed = schedule.copy()
    panel = pack(packed, name, factor, SCRATCH)
    site = packed.site(name)
    cost = _least(site, find_roles(site), facts) + packing_cycles(block, factor, facts)
    options = [Option((_PACKED,), cost)]
    roles = find_roles(block)
    if roles is not None and roles.lane == factor.lane:
        cost = _least(block, roles, facts, stride_in_place(block)) + partial_cycles(block, factor, facts)
        options.append(Option((_AS_THEY_LIE,), cost))
    elif roles is None:
        options.append(Option((_AS_DOTS,), dot_cycles(block, facts)))
    (chosen,) = chooser.choose(f"{name}.pack", options)
    if chosen == _PACKED:
        schedule.adopt(packed)
        return panel
    partial = partial_cycles(block, factor, facts) > 0
    return pack(schedule, name, factor, REGISTER) if chosen == _AS_THEY_LIE and partial else None


def _least(block: Site, roles: Roles | None, facts: TargetFacts, stride: int = 0) -> float:
    """Cycles with the best register tile."""
    if roles is None:
        return math.inf
    options = register_tiles(problem_of(block, roles, facts, stride), facts)
    return min((option.cost for option in options), default=math.inf)


def _repeats(reader: Site, sums: str) -> bool:
    """Whether an axis of a reader makes many results of each sum (the rows of a normalisation).

    They are no work on a register tile: there is one unrolled copy of them for each place in the tile.
    """
    used = {name for load in reader.loads if load.buffer.name == sums for name in load.uses}
    return any(extent_of(item.extent) > 1 and item.var.name not in used for item in reader.spatial)


_EVEN, _GROUP = 1.1, 4
"""What is shared out so evenly is left so; tiles of rows that a thread goes through at least."""


class _Contraction:
    """The steps of the rule, in the order in which they are applied."""

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        block: Site,
        roles: Roles,
        lanes: int,
        facts: TargetFacts,
        chooser: Chooser,
        panel: Panel | None,
    ) -> None:
        self.s, self.name, self.block, self.roles, self.panel = schedule, name, block, roles, panel
        self.lanes, self.facts, self.chooser = lanes, facts, chooser
        self.fetch = 0  # how many panels of weights ahead are asked for
        self.later = 0  # how many of the other axes of the sum are outside of the first one
        self.remainder = False  # the last tile has fewer vectors or lanes: no question for inner loops
        self.overlaps = False  # the last tile of rows computes some of the one before it again

    def run(self, epilogue: str | None) -> None:
        accumulator = self.block.target
        if epilogue is None or accumulator in self.s.program.outputs:
            epilogue = self.s.cache_write(self.name, accumulator, "register")
            accumulator = self.s.site(self.name).target
        else:
            self.s.set_scope(accumulator, "register")
        if self.roles.group:
            self.split_groups(accumulator, epilogue)
        stride = stride_in_place(self.block)
        problem = problem_of(self.block, self.roles, self.facts, stride)
        options = beyond(register_tiles(problem, self.facts), larger_tiles(problem, self.facts))
        tile = RegisterTile(*self.chooser.choose(f"{self.name}.tile", options))
        self.later = self.decide("reduction", 0, later_places(self.block.reduce))
        self.choose_layouts(accumulator, epilogue, tile.vectors)
        self.arrange(problem, epilogue, tile)

    def decide(self, what: str, guess: int, others: Iterable[int]) -> int:
        return decide(self.chooser, f"{self.name}.{what}", guess, others)

    def split_groups(self, accumulator: str, epilogue: str) -> None:
        """Make the channel group an axis of its own; the rest of the rule sees one group at a time."""
        size = self.roles.group
        store, lane = self.block.store, self.roles.lane.var
        self._split_buffer(accumulator, store, lane, size)
        self._split_constants(self.block, lane, size)
        reader = self.s.site(epilogue)
        runs_along = self._epilogue_lane(reader, accumulator)
        if runs_along is not None:
            self._split_constants(reader, runs_along, size)
        split_iteration(self.s, self.name, _number_of(self.block, lane), size)
        if runs_along is not None:
            split_iteration(self.s, epilogue, _number_of(reader, runs_along), size)
        block = self.s.site(self.name)
        roles = find_roles(block)
        assert roles is not None
        self.block, self.roles = block, roles

    def _split_constants(self, block: Site, var: Var, size: int) -> None:
        for load in block.loads:
            if load.buffer.scope == CONSTANT:
                self._split_buffer(load.buffer.name, load, var, size)

    def _split_buffer(self, buffer: str, access: Access, var: Var, size: int) -> None:
        dim = lone_dim(access, var)
        if dim is not None:
            self.s.transform_layout(buffer, IndexMap.identity(len(access.indices)).split(dim, size))

    # -- layouts

    def choose_layouts(self, accumulator: str, epilogue: str, vectors: int) -> None:
        """Lanes innermost: in the accumulator, in the repacked operand, in constants of the epilogue."""
        packed = self.roles.packed
        if packed is not None:
            self.s.transform_layout(packed.buffer.name, self.packed_map(packed, vectors))
        if self.panel is not None:
            lay_out_panel(self.s, self.panel, self.lanes)
        reader = self.s.site(epilogue)
        lane_var = self._epilogue_lane(reader, accumulator)
        store = self.block.store
        lane = self.roles.lane
        if not is_lane_of(store.indices[-1], lane.var.name):  # else it has a blocked output's layout
            lane_dim = self._dim_of(store, lane)
            self.s.transform_layout(accumulator, lanes_last(len(store.indices), lane_dim, self.lanes))
        if lane_var is not None:
            lanes_innermost(self.s, reader, lane_var, self.lanes)
        strip_mine(self.s, self.name, _number_of(self.block, lane.var), self.lanes)
        if lane_var is not None:
            strip_mine(self.s, epilogue, _number_of(reader, lane_var), self.lanes)

    def packed_map(self, packed: Access, vectors: int) -> IndexMap:
        """The order in which the tile reads the constant: lane blocks, reduction, lane."""
        axes = AXES[: len(packed.indices)]
        pairs = zip(axes, packed.indices, strict=True)
        place = {index.name: axis for axis, index in pairs if isinstance(index, Var)}
        lane = place.get(self.roles.lane.var.name)
        if lane is None:
            return IndexMap.identity(len(axes))
        reduce = [place[item.var.name] for item in self.block.reduce if item.var.name in place]
        width, split = vectors * self.lanes, self.reduce_split()
        outer = [axis for axis in axes if axis not in (lane, *reduce)]
        inner: list[Expr] = [axis for axis in axes if axis in reduce]
        first = place.get(self.block.reduce[0].var.name)
        tail = []
        if first is not None and (split is not None or self.later):
            inner = [axis for axis in inner if axis != first]
            inner.insert(self.later, first if split is None else first // split)
            tail = [] if split is None else [first % split]
        return IndexMap.of(len(axes), [*outer, lane // width, *inner, *tail, lane % width])

    def _dim_of(self, access: Access, item: Iter) -> int:
        return next(n for n, index in enumerate(access.indices) if item.var.name in variables(index))

    def _epilogue_lane(self, reader: Site, accumulator: str) -> Var | None:
        """The epilogue's variable that runs along the lane axis of the accumulator."""
        load = next(item for item in reader.loads if item.buffer.name == accumulator)
        uses = variables(load.indices[self._dim_of(self.block.store, self.roles.lane)])
        found = [item.var for item in reader.spatial if item.var.name in uses]
        return found[0] if len(found) == 1 else None

    def reduce_split(self) -> int | None:
        """Trips of the innermost part of the first reduction axis, when its operand is blocked along it."""
        first = self.block.reduce[0]
        blocked = any(
            is_lane_of(load.indices[-1], first.var.name)
            for load in self.block.loads
            if load is not self.roles.packed and load.indices
        )
        size = math.gcd(extent_of(first.extent), self.lanes)
        return size if blocked and 4 <= size < extent_of(first.extent) else None

    # -- loops

    def arrange(self, problem: ContractionProblem, epilogue: str, tile: RegisterTile) -> None:
        s, loops = self.s, list(self.s.loops(self.name))
        reduce = loops[len(loops) - len(self.block.reduce) :]
        lane_loop = loops[len(loops) - len(reduce) - 1]
        named = dict(zip([item.var.name for item in self.block.spatial], loops, strict=False))
        block_loop = named.pop(self.roles.lane.var.name)
        k_outer, k_tile = s.split(block_loop, (None, tile.vectors))
        part = extent_of(self.roles.lane.extent) % self.lanes and MASKED_MEMORY not in self.facts.intrinsics
        self.remainder = problem.vectors % tile.vectors != 0 or bool(part)
        m_outer, rows = self._split_rows(problem, tile, named)
        reduce = self._split_reduce(reduce)
        others = list(named.values())
        chunk = self._chunk(problem, tile, named) if m_outer is not None else 0
        self._choose_fetch(problem, tile, chunk)
        if m_outer is not None and chunk:
            around = self._around_chunks(named)
            inside = [loop for loop in others if loop not in around]
            self._cache_blocked(
                epilogue, chunk, [*around, k_outer], [*inside, m_outer], reduce, [*rows, k_tile, lane_loop]
            )
            return
        if self.panel is not None:
            own = self.panel.axes(self.block)
            outer = [*(loop for name, loop in named.items() if name in own), k_outer]
            inside = [loop for name, loop in named.items() if name not in own]
        else:
            outer, inside = self._outer_order(problem, tile.vectors, named, k_outer), []
            if m_outer is not None:
                outer, m_outer = self._share_rows(outer, m_outer, k_outer)
        reduce, steps = self._unroll_steps(reduce)
        s.reorder(*outer, *inside, *([m_outer] if m_outer else []), *reduce, *steps, *rows, k_tile, lane_loop)
        self._finish(epilogue, outer, m_outer or (inside[-1] if inside else None), reduce)

    def _split_rows(
        self, problem: ContractionProblem, tile: RegisterTile, named: dict[str, str]
    ) -> tuple[str | None, list[str]]:
        """(loop over tiles of rows or lines, loops inside a tile); takes the loops it uses out of `named`."""
        row, line = self.roles.row, self.roles.line
        if row is None:
            return None, []
        row_loop = named.pop(row.var.name)
        if tile.lines > 1 and line is not None:
            outer, lines = self.s.split(named.pop(line.var.name), (None, tile.lines))
            self.s.annotate(outer, PARTITION, 1)
            return outer, [lines, row_loop]
        rest = problem.rows % tile.rows
        shorter = has_shorter_tile(tile, problem, self.facts)
        shorter = bool(self.decide("tail", int(shorter), (0, 1) if rest else ()))
        whole = not rest or shorter
        outer, rows = self.s.split(row_loop, (None, tile.rows), tail="guard" if whole else "shift")
        self.overlaps = not whole
        if shorter:
            self.s.annotate(outer, PARTITION, 1)
        return outer, [rows]

    def _share_rows(self, outer: list[str], tiles: str, k_outer: str) -> tuple[list[str], str]:
        """The loops for threads to share, and that over tiles of rows, perhaps of a group of them only.

        Groups are shared where other loops do not come out even. They may also go outside of the blocks of
        lanes, so that the rows of one stay in a cache while all weights pass.
        """
        shares = math.prod(extent_of(self.s.loop(loop).extent) for loop in outer)
        loop = self.s.loop(tiles)
        count = extent_of(loop.extent)
        # A loop that asks about the last tile, or a tile that two threads would write.
        if self.remainder or loop.annotations or self.overlaps:
            return outer, tiles
        numbers = [n for n in range(2, count + 1) if count % n == 0]
        even = [n for n in numbers if n <= count // _GROUP and uneven(shares * n) <= _EVEN]
        small = uneven(shares) <= _EVEN or iterations(self.block.block.iters) < SMALL
        guess = even[0] if even and not small else 1
        options = shares_of(guess, numbers)
        groups, outside = self.chooser.choose(f"{self.name}.share", options) if numbers else (1, 0)
        if groups == 1:
            return outer, tiles
        group, inner = self.s.split(tiles, (groups, count // groups))
        at = outer.index(k_outer) if outside else len(outer)
        return [*outer[:at], group, *outer[at:]], inner

    def _split_reduce(self, reduce: list[str]) -> list[str]:
        size, inner = self.reduce_split(), list[str]()
        first, *others = reduce
        if size is not None:
            first, *inner = self.s.split(first, (None, size))
        return [*others[: self.later], first, *others[self.later :], *inner]

    def _unroll_steps(self, reduce: list[str]) -> tuple[list[str], list[str]]:
        """Loops over steps of the sum, and those whose steps are written out."""
        extents = [extent_of(self.s.loop(loop).extent) for loop in reduce]
        each = self.panel is not None and not self.panel.whole  # a step fills it
        factor = self.decide("unroll", 1, unroll_factors(extents) if not each else ())
        return part_of_steps(self.s, reduce, factor)

    def _outer_order(
        self, problem: ContractionProblem, vectors: int, named: dict[str, str], k_outer: str
    ) -> list[str]:
        """Whether the lane blocks or the other axes run outermost, by the traffic that each causes."""
        others, line = list(named.values()), self.roles.line
        last = line is not None and [*named][1:][-1:] == [line.var.name]
        lines = extent_of(self.s.loop(others[-1]).extent) if last else 1
        options = outer_orders(problem, vectors, self.facts, lines)
        (order,) = self.chooser.choose(f"{self.name}.order", options)
        batch, rest = others[:1], others[1:]
        if order == 0:
            return [*batch, k_outer, *rest]
        if order == 1:
            return [*batch, *rest, k_outer]
        blocks, inner = self.s.split(rest[-1], (None, order))
        return [*batch, *rest[:-1], blocks, k_outer, inner]

    def _chunk(self, problem: ContractionProblem, tile: RegisterTile, named: dict[str, str]) -> int:
        """Blocks of the first reduction axis in a chunk; 0: no chunks.

        The model is for blocks of channels; a sum along one axis is cut by search only.
        """
        size = self.reduce_split()
        if self.roles.packed is None or self.later or (size is None and len(self.block.reduce) > 1):
            return 0
        around = math.prod(extent_of(self.s.loop(loop).extent) for loop in self._around_chunks(named))
        blocks = extent_of(self.block.reduce[0].extent) // (size or 1)
        sizes = (tile, problem, blocks, around, self.facts)
        larger = larger_chunks(*sizes, overlaps=self.overlaps)
        options = chunk_options(*sizes, overlaps=self.overlaps)
        if size is None:
            step = math.gcd(blocks, self.lanes)
            larger = [item for item in (*options[1:], *larger) if item.value[0] % step == 0]
            options = options[:1]
        options = beyond(options, larger)
        (chunk,) = self.chooser.choose(f"{self.name}.chunk", options) if len(options) > 1 else (0,)
        return chunk

    def _choose_fetch(self, problem: ContractionProblem, tile: RegisterTile, chunk: int) -> None:
        """How many panels (or chunks) of the weights ahead are asked for: none, the next, the one behind."""
        if self.roles.packed is None or (tile.vectors >= problem.vectors and not chunk):
            return
        guess = 1 if chunk else int(fetches_ahead(tile, problem, self.facts))
        self.fetch = self.decide("fetch", guess, (0, 1, 2))

    def _fetch_weights(self, loop: str) -> None:
        if not self.fetch or self.roles.packed is None:
            return
        self.s.annotate(loop, PREFETCH, self.roles.packed.buffer.name)
        if self.fetch > 1:
            self.s.annotate(loop, AHEAD, self.fetch)

    def _around_chunks(self, named: dict[str, str]) -> list[str]:
        """Of the loops beside lanes, rows and lines: those over images and over groups of weights."""
        assert self.roles.packed is not None
        first = next(iter(named), None)
        return [loop for name, loop in named.items() if name == first or name in self.roles.packed.uses]

    def _cache_blocked(
        self, epilogue: str, size: int, outer: list[str], tiles: list[str], reduce: list[str], tile: list[str]
    ) -> None:
        """Sums in scratch; all tiles of an image inside of a chunk of the sum; the next chunk fetched."""
        s, sums = self.s, self.s.site(self.name).target
        s.set_scope(sums, "scratch")
        chunk, first = s.split(reduce[0], (None, size))
        reduce, steps = self._unroll_steps([first, *reduce[1:]])
        s.reorder(*outer, chunk, *tiles, *reduce, *steps, *tile)
        self._fetch_weights(chunk)
        fused = fuse_all(s, outer)
        if self.remainder:
            s.annotate(fused, PARTITION, 1)
        s.reverse_compute_at(epilogue, fused)
        init = s.decompose_reduction(self.name, chunk)
        load, store = s.cache_inplace(self.name, sums, "register", tiles[-1])
        for block in (load, self.name, store):
            unroll_inside(s, block, tiles[-1], reduce)
        for block in (init, epilogue):
            s.vectorize(s.loops(block)[-1])
        if takes_threads(self.chooser, self.name, guess=True):
            s.parallel(fused)

    def _finish(self, epilogue: str, outer: list[str], m_outer: str | None, reduce: list[str]) -> None:
        s = self.s
        fused = fuse_all(s, outer)
        at = m_outer or fused
        s.reverse_compute_at(epilogue, at)
        init = s.decompose_reduction(self.name, reduce[0])
        if self.panel is not None:
            place_panel(s, self.panel, fused, reduce[-1], self.lanes)
        if self.panel is not None or self.remainder:
            s.annotate(fused, PARTITION, 1)
        for block in (init, self.name, epilogue):
            unroll_inside(s, block, at, reduce)
        self._fetch_weights(fused)
        large = iterations(self.block.block.iters) >= SMALL
        if takes_threads(self.chooser, self.name, guess=large):
            s.parallel(fused)


def _number_of(block: Site, var: Var) -> int:
    return next(number for number, item in enumerate(block.block.iters) if item.var == var)
