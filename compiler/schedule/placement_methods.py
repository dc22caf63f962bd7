"""The typed methods of `Schedule` for primitives that move computation and data."""

from __future__ import annotations

from compiler.schedule.methods import Applies
from compiler.schedule.primitives.cache import CacheInplace, CacheRead, CacheWrite
from compiler.schedule.primitives.layout import TransformBlockLayout, TransformLayout
from compiler.schedule.primitives.operand import CacheOperand
from compiler.schedule.primitives.padding import DecomposePadding, PadEinsum
from compiler.schedule.primitives.pipeline import SoftwarePipeline, VThread
from compiler.schedule.primitives.placement import ComputeAt, ReverseComputeAt
from compiler.schedule.primitives.storage import SetScope, StorageAlign
from compiler.schedule.primitives.tensor import Blockize, Tensorize


class PlacementMethods(Applies):
    """Primitives about places: of computation, of data, in memory."""

    def compute_at(self, block: str, loop: str) -> tuple[str, ...]:
        """Compute a producer under a loop of its consumers; gives the new loops."""
        return self.names(ComputeAt(block, loop))

    def reverse_compute_at(self, block: str, loop: str) -> tuple[str, ...]:
        """Compute a consumer under a loop of its producers; gives the new loops."""
        return self.names(ReverseComputeAt(block, loop))

    def cache_read(self, block: str, buffer: str, scope: str) -> str:
        """Let a block read a copy of a buffer; gives the block that copies."""
        return self.names(CacheRead(block, buffer, scope))[0]

    def cache_write(self, block: str, buffer: str, scope: str) -> str:
        """Let a block write a cache; gives the block that copies it to the buffer."""
        return self.names(CacheWrite(block, buffer, scope))[0]

    def cache_inplace(self, block: str, buffer: str, scope: str, loop: str) -> tuple[str, ...]:
        """Update an accumulator tile by tile in a cache; gives the blocks that load and store."""
        return self.names(CacheInplace(block, buffer, scope, loop))

    def cache_operand(
        self, block: str, operand: int, axes: tuple[int, ...], scope: str, dtype: str | None = None
    ) -> tuple[str, str]:
        """Let a block read a factor from a buffer; gives the block that computes it, and the buffer."""
        made, buffer = self.names(CacheOperand(block, operand, axes, scope, dtype))
        return made, buffer

    def set_scope(self, buffer: str, scope: str) -> None:
        """Say in which memory a local buffer lives."""
        self.names(SetScope(buffer, scope))

    def storage_align(self, buffer: str, axis: int, factor: int, offset: int = 0) -> None:
        """Put the rows of a local buffer at distances `factor * n + offset`."""
        self.names(StorageAlign(buffer, axis, factor, offset))

    def transform_layout(self, buffer: str, index_map: str, pad: float | None = None) -> tuple[str, ...]:
        """Store a buffer in another layout; gives the blocks that write padding."""
        return self.names(TransformLayout(buffer, index_map, pad))

    def transform_block_layout(self, block: str, index_map: str) -> tuple[str, ...]:
        """Iterate a block over other variables; gives the new loops, one for each output of the map."""
        return self.names(TransformBlockLayout(block, index_map))

    def decompose_padding(self, block: str) -> tuple[str, ...]:
        """Part a block that pads into its interior and its border; gives the blocks of the border."""
        return self.names(DecomposePadding(block))

    def pad_einsum(self, block: str, padding: tuple[int, ...]) -> tuple[str, ...]:
        """Round the extents of a sum of products up; gives the blocks that copy."""
        return self.names(PadEinsum(block, padding))

    def blockize(self, loop: str) -> str:
        """Make one block of all under a loop; gives the block."""
        return self.names(Blockize(loop))[0]

    def tensorize(self, target: str, intrinsic: str) -> str:
        """Let a registered tensor intrinsic do what a block (or all under a loop) does; gives the block."""
        return self.names(Tensorize(target, intrinsic))[0]

    def software_pipeline(
        self, loop: str, stages: tuple[int, ...], order: tuple[int, ...] = (), *, guarded: bool = False
    ) -> tuple[str, ...]:
        """Run the statements of a loop for different iterations; gives the blocks that fill and drain."""
        return self.names(SoftwarePipeline(loop, stages, order, guarded))

    def vthread(self, loop: str) -> tuple[str, ...]:
        """Interleave the iterations of a loop; gives the loops that it became."""
        return self.names(VThread(loop))
