"""Products on matrix units whose fragments are opaque: `wmma` of CUDA, `joint_matrix` of SYCL.

Which lane holds what is the device's matter. So a sub-group loads, multiplies and stores whole tiles, and its
sums pass through shared memory, from where threads go on as without a unit:

    blockIdx.z (batches), blockIdx.y (rows), blockIdx.x (columns)
      threadIdx.y (sub-groups): fill tile                                                fragments
      for taps..., for part of the sum
        all threads: left[row, step] = ...; right[column, step] = ...                    shared
        threadIdx.y: for step: load a, b from left, right; multiply tile by them         fragments
      threadIdx.y: store sums[row, column] from tile                                     shared
      threadIdx.y, threadIdx.x: output[...] = epilogue(sums[row, column])
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.loops.index_map import AXES
from compiler.loops.ir import FRAGMENT, SHARED
from compiler.loops.matrix_units import wmma
from compiler.loops.matrix_units.tile_calls import intrinsic_name
from compiler.loops.queries import extent_of
from compiler.schedule import thread_intrinsics
from compiler.schedule.rules.threads.common import BANKS
from compiler.schedule.rules.threads.matrix_tile import KEPT_PADDING, MatrixTile
from compiler.schedule.rules.threads.unit_gemm import GROUP, UnitGemm

assert thread_intrinsics.TILE_INTRINSICS

_WRITTEN_OUT = 8
"""Results of a thread, one below the other, that are written out."""


class OpaqueGemm(UnitGemm):
    """The steps of the rule, in the order in which they are applied."""

    def spread_opaque(self, tile: MatrixTile, last: str, lanes: int) -> None:
        """Stage the factors and give the tiles to sub-groups."""
        stages = self.pad(tile, self.stage(terms_last=True))
        self.widths = {stage: self.wide(self.s.site(stage)) for stage in stages}
        held = [self.s.cache_read(self.name, self.stored_by(stage).name, FRAGMENT) for stage in stages]
        kept = self.s.cache_write(self.name, self.total, FRAGMENT)
        self.s.set_scope(self.total, SHARED)
        self._lay_out(self.s.site(self.name).target, "c")
        grid, _, rounds, groups, product, own, inside = self.cut_tiles(tile)
        stored = self.s.reverse_compute_at(kept, grid[-1])
        follow = self.s.reverse_compute_at(last, grid[-1])
        self.s.bind(self.s.fuse(*groups), GROUP)
        for loop in own:
            self.s.unroll(loop)
        self._fill(self.s.decompose_reduction(self.name, rounds[0]))
        for name, side in zip(held, ("a", "bt"), strict=True):
            self._hold(name, side, product)
        self.s.unroll(product)
        self.s.tensorize(inside, intrinsic_name(tile.unit, "mma"))
        self._keep(stored, tile)
        self._follow(follow, tile, lanes)
        self.bring(stages, rounds, rounds[-1], tile)
        self.bind_grid(grid)

    def _rank(self, buffer: str) -> int:
        return next(len(item.shape) for item in self.s.func.allocs if item.name == buffer)

    def _lay_out(self, buffer: str, part: str) -> None:
        """Let a buffer hold tiles of a part of the product, one behind the other, as lanes hold them."""
        *outer, row, column = (axis.name for axis in AXES[: self._rank(buffer)])
        places = wmma.fragment_of(self.unit, part).tiles_at(row, column)
        self.s.transform_layout(
            buffer, f"{', '.join((*outer, row, column))} -> {', '.join((*outer, *places))}"
        )

    def _hold(self, name: str, side: str, product: str) -> None:
        """Load the tiles of a factor that a sub-group multiplies in a step."""
        self.s.compute_at(name, product)
        fragment = wmma.fragment_of(self.unit, side)
        row, column = self.s.loops(name)[-2:]
        tiles, *row_digits = self.cut(row, (None,), fragment.rows)
        if len(fragment.columns) > 1:
            self.cut(column, (), fragment.columns)
        self._lay_out(self.s.site(name).target, side)
        self.s.unroll(tiles)
        self.s.tensorize(row_digits[0], intrinsic_name(self.unit, f"load_{side}"))

    def _fill(self, start: str) -> None:
        """The sums begin as tiles of zeros."""
        digits = len(self.unit.c.rows) + len(self.unit.c.columns)
        self.s.tensorize(self.s.loops(start)[-digits], intrinsic_name(self.unit, "fill"))

    def _keep(self, loops: Sequence[str], tile: MatrixTile) -> None:
        """Each sub-group stores its sums where all threads of the block read them."""
        row, column = loops[-2:]
        row_group, rows, *row_digits = self.cut(row, (tile.along_rows, tile.own_rows), self.unit.c.rows)
        col_group, columns, *col_digits = self.cut(
            column, (tile.along_columns, tile.own_columns), self.unit.c.columns
        )
        self.s.reorder(row_group, col_group, rows, columns, *row_digits, *col_digits)
        self.s.bind(self.s.fuse(row_group, col_group), GROUP)
        for loop in (rows, columns):
            self.s.unroll(loop)
        self.s.tensorize(row_digits[0], intrinsic_name(self.unit, "store"))
        self.s.storage_align(
            self.total, self._rank(self.total) - 2, BANKS, (tile.columns + KEPT_PADDING) % BANKS
        )

    def _follow(self, loops: Sequence[str], tile: MatrixTile, lanes: int) -> None:
        """The epilogue: neighbouring threads take neighbouring columns, in vectors where they can."""
        row, column = loops[-2:]
        wide = math.gcd(lanes, tile.columns)
        along = min(tile.threads, tile.columns // wide)
        below, slow = self.s.split(row, (None, tile.threads // along))
        beside, fast, vector = self.s.split(column, (None, along, wide))
        self.s.reorder(slow, fast, below, beside, vector)
        self.bind_threads(self.s.fuse(slow, fast), tile)
        if extent_of(self.s.loop(below).extent) <= _WRITTEN_OUT:
            self.s.unroll(below)
        self.s.unroll(beside)
        (self.s.vectorize if wide > 1 else self.s.unroll)(vector)
