"""Sums over the rows of a tile, by all threads of the block that goes on with them."""

from __future__ import annotations

from compiler.loops.ir import REGISTER, SHARED
from compiler.loops.queries import extent_of, variables
from compiler.schedule.rules.common import fuse_all
from compiler.schedule.rules.threads.common import THREAD
from compiler.schedule.rules.threads.gemm import ImplicitGemm
from compiler.schedule.rules.threads.rows import parts_of
from compiler.schedule.rules.threads.tile import BlockTile

_MOST_PARTS = 32
"""Parts of a row that one thread combines in the end."""

UNDER_WAY = 16
"""Elements of a row that a thread asks for at the same time."""


class RowSums(ImplicitGemm):
    """A product whose block of threads makes sums over rows, too."""

    tile: BlockTile

    def place_sum(self, name: str, loop: str) -> None:
        """A sum over each row of a tile, under a loop, by several threads, in shared memory."""
        over = fuse_all(self.s, parts_of(self.s, name)[1])
        parts = min(_MOST_PARTS, max(1, self.tile.threads // self.tile.rows))
        even = extent_of(self.s.loop(over).extent) % parts == 0
        part, buffer = self.s.rfactor(name, self.s.split(over, (None, parts))[1])
        for made in (buffer, self.s.site(name).target):
            self.s.set_scope(made, SHARED)
        self.place_rows(name, loop, registers=True)
        self.place_rows(part, loop, registers=even)

    def place_rows(self, name: str, around: str, *, registers: bool) -> None:
        """Give rows, or parts of them, to threads; sums grow in registers, or where the others read them."""
        stored = self.s.cache_write(name, self.s.site(name).target, REGISTER) if registers else name
        self.s.compute_at(stored, around)
        inside = self.s.loops(stored)[self.s.loops(stored).index(around) + 1 :]
        over = {loop for item in self.s.site(stored).reduce for loop in variables(item.binding)}
        own, terms = ([loop for loop in inside if (loop in over) == inner] for inner in (False, True))
        self.s.reorder(*own, *terms)
        thread = fuse_all(self.s, own)
        if registers:
            self.s.compute_at(name, thread)
            few = min(UNDER_WAY, extent_of(self.s.loop(self.s.loops(name)[-1]).extent))
            terms = [*self.s.split(self.s.loops(name)[-1], (None, few))]
            self.s.unroll(terms[1])
        self.s.decompose_reduction(name, terms[0])
        self.bind_threads(thread, self.tile)

    def bind_threads(self, loop: str, tile: BlockTile) -> None:
        """Give the iterations of a loop to all threads of a block."""
        if extent_of(self.s.loop(loop).extent) != tile.threads:
            loop = self.s.split(loop, (None, tile.threads))[1]
        self.s.bind(loop, THREAD)
