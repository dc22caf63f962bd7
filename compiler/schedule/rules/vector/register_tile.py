"""The choice of a register tile for a contraction: what fits the registers, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.schedule.chooser import Option

THREADS = 4
"""Work that cannot be shared out evenly over this many threads counts as longer."""


@dataclass(frozen=True, slots=True)
class ContractionProblem:
    """Sizes that the choice of a register tile depends on.

    vectors: lane blocks (of one group); rows: extent of the row axis; steps: trips of the reduction;
    outer: iterations of the remaining spatial axes; broadcast: the row operand is a scalar per lane block
    (else it is read as a vector); packed_bytes: all of the repacked operand; lines: extent of the line axis;
    stride: bytes from what one step reads for the lanes to what the next one reads, where that is read in
    place (0: step after step in a panel that was packed, or not known); row_stride: bytes from one row's
    operand to the next one's (0: not known); row_bytes: all that is read of the rows' operand, in lines of
    the cache (0: not known); remainder: the last tile may have fewer vectors; overlap: the last rows are
    always part of a whole tile, which begins among the rows of the one before.
    """

    vectors: int
    rows: int
    steps: int
    outer: int
    broadcast: bool
    packed_bytes: int
    lines: int = 1
    stride: int = 0
    row_stride: int = 0
    row_bytes: int = 0
    remainder: bool = False
    overlap: bool = False


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """What one step of the reduction computes: vectors of lanes, rows, and lines of whole rows."""

    vectors: int
    rows: int
    lines: int

    @property
    def value(self) -> tuple[int, ...]:
        """The tile as a decision."""
        return (self.vectors, self.rows, self.lines)


def register_tiles(problem: ContractionProblem, facts: TargetFacts) -> list[Option]:
    """Register tiles that fit the register file, with their estimated cost in cycles."""
    tiles = _tiles(problem, facts, facts.vector_registers)
    return [Option(tile.value, _tile_cost(tile, problem, facts)) for tile in tiles]


_MORE = 6
"""Registers that a tile may need beyond those that there are: compilers keep operands in memory."""

_SPILLED = 0.1
"""Share of its time that a tile takes longer for each register that there is not, about."""


def larger_tiles(problem: ContractionProblem, facts: TargetFacts) -> list[Option]:
    """Register tiles whose sums fit the register file, but not their operands beside them."""
    found = []
    for tile in _tiles(problem, facts, facts.vector_registers + _MORE):
        rows = tile.rows * tile.lines
        spilled = _registers(tile.vectors, rows, problem) - facts.vector_registers
        if spilled > 0 and tile.vectors * rows <= facts.vector_registers:
            cost = _tile_cost(tile, problem, facts) * (1.0 + _SPILLED * spilled)
            found.append(Option(tile.value, cost))
    return found


def _tiles(problem: ContractionProblem, facts: TargetFacts, registers: int) -> list[RegisterTile]:
    """Tiles that need no more than so many registers."""
    return [
        RegisterTile(vectors, rows, lines)
        for vectors in range(1, min(problem.vectors, _MOST_VECTORS) + 1)
        if problem.remainder or problem.vectors % vectors == 0
        for rows in range(1, min(problem.rows, facts.vector_registers) + 1)
        for lines in range(1, _most_lines(rows, problem) + 1)
        if _registers(vectors, rows * lines, problem) <= registers
    ]


_MOST_VECTORS = 16


def _most_lines(rows: int, problem: ContractionProblem) -> int:
    """Several lines only of whole rows that read the row operand by scalars."""
    return problem.lines if rows == problem.rows and problem.broadcast else 1


def _registers(vectors: int, rows: int, problem: ContractionProblem) -> int:
    return vectors * rows + (min(vectors, rows) + 1 if problem.broadcast else 2)


def _tile_cost(tile: RegisterTile, problem: ContractionProblem, facts: TargetFacts) -> float:
    """Cycles for the whole problem: those of a tile, times tiles; the last ones may be smaller."""
    total = 0.0
    for vectors, times in _parts(problem.vectors, tile.vectors):
        total += times * _rows_cost(RegisterTile(vectors, tile.rows, tile.lines), problem, facts)
    total *= problem.outer
    around = problem.outer * math.ceil(problem.vectors / tile.vectors)
    if tile.lines > 1:  # the lines are not shared out to threads then
        return total * uneven(around)
    return total if problem.rows > 1 else _streamed_cost(total, problem, around * problem.lines, facts)


def _rows_cost(tile: RegisterTile, problem: ContractionProblem, facts: TargetFacts) -> float:
    """Cycles for all lines and rows of so many vectors."""
    total = 0.0
    for lines, times in _parts(problem.lines, tile.lines):
        whole, rest = divmod(problem.rows, tile.rows)
        full = _tile_cycles(tile.vectors, tile.rows * lines, problem, facts)
        last = full if rest else 0.0
        if rest and has_shorter_tile(tile, problem, facts):
            last = _tile_cycles(tile.vectors, rest * lines, problem, facts)
        total += times * (whole * full + last)
    return total


def _parts(extent: int, size: int) -> list[tuple[int, int]]:
    """(size, how often) of the whole parts of an extent, and of the rest."""
    whole, rest = divmod(extent, size)
    return [(size, whole), (rest, 1)] if rest else [(size, whole)]


_WORTH = 0.01
"""Share of its time that a second tile in a kernel has to save: it is as long a text again."""


def has_shorter_tile(tile: RegisterTile, problem: ContractionProblem, facts: TargetFacts) -> bool:
    """Whether the last rows, if they fill no tile, get one of their own; else it overlaps the one before."""
    whole, rest = divmod(problem.rows, tile.rows)
    if not rest or not whole or problem.overlap:
        return False
    full = _tile_cycles(tile.vectors, tile.rows, problem, facts)
    return full - _tile_cycles(tile.vectors, rest, problem, facts) > _WORTH * full * (whole + 1)


_NOT_HIDDEN = 0.1
"""Share of the cycles for the operands' way from the second-level cache that arithmetic does not hide: on
Zen 4 0.04 where weights lie there (panels of 48 to 96 KB), more where rows come from farther; before weights
were fetched ahead, 0.25 was estimated from products on a core with a second level of 512 KB."""


def _tile_cycles(vectors: int, rows: int, problem: ContractionProblem, facts: TargetFacts) -> float:
    """Cycles of one tile: arithmetic, loads and latency of one step, times steps; then its epilogue."""
    tile = vectors * rows
    arithmetic = tile / facts.fma_per_cycle
    reads = rows + vectors if problem.broadcast else tile + vectors
    latency = facts.fma_latency if problem.steps > 1 else 0.0
    panel, waits = _panel_cycles(vectors, problem, facts), _conflict_cycles(vectors, rows, problem, facts)
    refill = panel + _row_cycles(rows, problem, facts)
    issue = (0.1 * reads + 0.5) * min(1.0, facts.fma_per_cycle / 2)  # halves of vectors leave slots free
    step = max(arithmetic, reads / facts.loads_per_cycle, latency, refill)
    step += _NOT_HIDDEN * refill + waits + issue
    return step * problem.steps + tile * (1.0 + 1.0 / facts.stores_per_cycle)


def _streamed_cost(total: float, problem: ContractionProblem, tiles: int, facts: TargetFacts) -> float:
    """Cycles where the packed operand is read once: the time of its bytes, if they are shared out evenly."""
    memory = problem.packed_bytes * facts.hertz / facts.bandwidth
    return max(total, memory) * uneven(tiles) + 0.05 * total


def uneven(shares: int) -> float:
    """How much longer the busiest of a few threads works than it had to."""
    return math.ceil(shares / THREADS) * THREADS / shares


def _panel_cycles(vectors: int, problem: ContractionProblem, facts: TargetFacts) -> float:
    """Cycles to bring the packed operand of one step to the first-level cache, if it is not there."""
    if not problem.packed_bytes:
        return 0.0
    step_bytes = vectors * facts.vector_bits / 8
    return step_bytes / facts.l2.fed if step_bytes * problem.steps > facts.l1.bytes / 2 else 0.0


def _row_cycles(rows: int, problem: ContractionProblem, facts: TargetFacts) -> float:
    """Cycles to bring what one step reads of the rows' operand to the first-level cache, if it is not there.

    Taps of a window read most elements again while they are there.
    """
    if problem.row_bytes <= facts.l1.bytes / 2 or not problem.broadcast:
        return 0.0
    again = max(1.0, 4.0 * problem.rows * problem.lines * problem.outer * problem.steps / problem.row_bytes)
    return 4.0 * rows / again / facts.l2.fed


_WAYS = 8
"""Lines of one set that a first-level cache holds, on all x86 server cores."""

_PANEL_CONFLICT, _ROW_CONFLICT = 0.6, 1.0
"""Cycles for each line of the lanes' operand, and for each row, that others pushed out of the first-level
cache; measured with AVX2 and AVX-512 on a core with 8 ways."""


def _conflict_cycles(vectors: int, rows: int, problem: ContractionProblem, facts: TargetFacts) -> float:
    """Cycles lost in a step where what the tile reads in place falls on few sets of the first-level cache."""
    lines = math.ceil(vectors * facts.vector_bits / 8 / facts.l1.line)
    sets = facts.l1.bytes // facts.l1.line // _WAYS
    kept = min(sets, _sets(problem.stride, facts) * lines) * _WAYS * 0.75
    panel = lines if problem.stride and problem.steps * lines > kept else 0
    others = rows if problem.row_stride and rows > _sets(problem.row_stride, facts) * _WAYS else 0
    return _PANEL_CONFLICT * panel + _ROW_CONFLICT * others


def _sets(stride: int, facts: TargetFacts) -> int:
    """How many sets of the first-level cache lines that are so many bytes apart fall on."""
    line, sets = facts.l1.line, facts.l1.bytes // facts.l1.line // _WAYS
    return sets // math.gcd(sets, stride // line) if stride % line == 0 else sets


_FROM_L1 = 0.6
"""Share of the first-level cache that a chunk of the packed operand may fill beside what else is used."""

_FROM_L2 = 0.1
"""Share of the second-level cache that the sums of all tiles may fill."""


def chunk_options(
    tile: RegisterTile,
    problem: ContractionProblem,
    blocks: int,
    around: int,
    facts: TargetFacts,
    *,
    overlaps: bool | None = None,
) -> list[Option]:
    """How many blocks of the first reduction axis all tiles of an image go through before the next ones.

    0: all of them at once, so that sums stay in registers and the packed operand is read again for each tile.
    Else a chunk stays in the first-level cache meanwhile and the next one is fetched, but sums are loaded and
    stored once for each chunk. Costs are in cycles, with a packed operand that no cache holds before.
    `blocks`: length of the reduction axis; `around`: product of the spatial axes that stay outside of chunks;
    `overlaps`: whether the last tile of rows begins in the one before, where that is decided already.
    """
    shares = math.ceil(problem.vectors / tile.vectors)
    first = shares * _tile_cycles(tile.vectors, tile.rows * tile.lines, problem, facts)
    memory = problem.packed_bytes * facts.hertz / facts.bandwidth
    whole = _tile_cost(tile, problem, facts)
    sums_bytes = _sums_bytes(tile, problem, around, facts)
    read_again = 0.0
    if _crowded(tile, problem, facts) and sums_bytes <= facts.l1.bytes / 4:
        tiles = math.ceil(_inside(problem, around) / (tile.rows * tile.lines))
        read_again = problem.packed_bytes * tiles / facts.l2.fed
    options = [Option((0,), whole + max(0.0, memory - first) + read_again)]
    if sums_bytes > _FROM_L2 * facts.l2.bytes:
        return options
    most = _FROM_L1 * facts.l1.bytes / (tile.vectors * facts.vector_bits / 8 * problem.steps / blocks)
    sizes = _chunk_sizes(tile, problem, blocks, around, facts, overlaps=overlaps)
    costs = [(n, _chunk_cost(n, tile, problem, blocks, around, facts)) for n in sizes if n <= int(most)]
    return options + [Option((size,), cost) for size, cost in costs]


def larger_chunks(
    tile: RegisterTile,
    problem: ContractionProblem,
    blocks: int,
    around: int,
    facts: TargetFacts,
    *,
    overlaps: bool,
) -> list[Option]:
    """Chunks of which more is alive than the model has room for, as in `chunk_options`."""
    if _sums_bytes(tile, problem, around, facts) > facts.l2.bytes / 2:
        return []
    step = tile.vectors * facts.vector_bits / 8 * problem.steps / blocks
    taken = {item.value for item in chunk_options(tile, problem, blocks, around, facts, overlaps=overlaps)}
    sizes = _chunk_sizes(tile, problem, blocks, around, facts, overlaps=overlaps)
    return [
        Option((size,), _chunk_cost(size, tile, problem, blocks, around, facts))
        for size in sizes
        if (size,) not in taken and size * step <= facts.l2.bytes
    ]


def _inside(problem: ContractionProblem, around: int) -> int:
    """Rows of all tiles that work on a chunk."""
    return problem.rows * problem.lines * problem.outer // around


def _sums_bytes(tile: RegisterTile, problem: ContractionProblem, around: int, facts: TargetFacts) -> float:
    """Bytes of the sums that wait between two chunks."""
    return _inside(problem, around) * tile.vectors * facts.vector_bits / 8


def _chunk_sizes(
    tile: RegisterTile,
    problem: ContractionProblem,
    blocks: int,
    around: int,
    facts: TargetFacts,
    *,
    overlaps: bool | None,
) -> list[int]:
    """Sizes of chunks; none where tiles share rows, to which each would add a chunk, or there is one tile."""
    if overlaps is None:
        overlaps = problem.rows % tile.rows > 0 and not has_shorter_tile(tile, problem, facts)
    if overlaps or _inside(problem, around) <= tile.rows * tile.lines:
        return []
    return [size for size in range(1, blocks) if blocks % size == 0]


def _chunk_cost(
    size: int, tile: RegisterTile, problem: ContractionProblem, blocks: int, around: int, facts: TargetFacts
) -> float:
    memory = problem.packed_bytes * facts.hertz / facts.bandwidth
    sums = 4.0 * _inside(problem, around) * around * problem.vectors * (blocks // size)
    whole, shares = _tile_cost(tile, problem, facts), math.ceil(problem.vectors / tile.vectors)
    return max(whole + sums, memory) * uneven(around * shares)


def _crowded(tile: RegisterTile, problem: ContractionProblem, facts: TargetFacts) -> bool:
    """Whether a panel of weights and the rows that it meets push each other out of the second-level cache.

    Arithmetic hides little of a panel's way to each tile then: on Zen 3 (512 KB) two convolutions at 7 x 7
    with panels of 200 and 440 KB reached 63 and 71 % of the peak, 80 and 92 % in chunks.
    """
    panel = tile.vectors * facts.vector_bits / 8 * problem.steps
    return panel + problem.row_bytes / problem.outer > facts.l2.bytes


def outer_orders(problem: ContractionProblem, vectors: int, facts: TargetFacts, lines: int) -> list[Option]:
    """Which loops run outermost, with the bytes that come from beyond the second-level cache.

    0: blocks of weights, so that rows are read again for each of them; 1: lines of rows, so that weights are;
    n: blocks of n lines, which stay in the cache while all weights pass. `lines`: extent of the line axis
    where it may be cut into blocks.
    """
    blocks = math.ceil(problem.vectors / vectors)
    room, row_bytes = facts.l2.bytes // 2, problem.row_bytes
    inputs = row_bytes * (1 if row_bytes <= room else blocks)
    weights = problem.packed_bytes * (1 if problem.packed_bytes <= room else problem.outer * problem.lines)
    options = [Option((0,), inputs + problem.packed_bytes), Option((1,), row_bytes + weights)]
    sizes = [n for n in range(2, lines) if lines % n == 0]
    for n in sizes:
        read = row_bytes * (1 if row_bytes * n <= room * lines else blocks)
        options.append(Option((n,), read + problem.packed_bytes * (lines // n)))
    return options


_STREAM = 4096
"""Bytes of a panel that are fetched soon enough without being asked for: hardware follows up to a page."""


def fetches_ahead(tile: RegisterTile, problem: ContractionProblem, facts: TargetFacts) -> bool:
    """Whether the next panel of weights is asked for meanwhile: where there is one, and each is used often.

    Weights were last read one inference ago, so no cache near a core holds them.
    """
    panel = tile.vectors * facts.vector_bits // 8 * problem.steps
    places = problem.rows * problem.lines * problem.outer
    return panel > _STREAM and tile.vectors < problem.vectors and places > tile.rows * tile.lines
