"""The typed methods of `Schedule`: each makes one primitive and applies it.

Mixins by family keep the files small. `PlacementMethods` has the primitives that move data and computation.
"""

from __future__ import annotations

from typing import cast

from compiler.schedule.primitives.base import Outputs, Primitive, Value
from compiler.schedule.primitives.inline import ComputeInline, ReverseComputeInline
from compiler.schedule.primitives.loops import (
    Annotate,
    Bind,
    Fuse,
    Parallel,
    Reorder,
    Tile,
    Unannotate,
    Unroll,
    Vectorize,
)
from compiler.schedule.primitives.reduction import DecomposeReduction, RFactor
from compiler.schedule.primitives.sampling import SampleCategorical, SampleComputeLocation, SampleTile
from compiler.schedule.primitives.split import Split


class Applies:
    """Something that applies primitives: `Schedule`, as its mixins see it."""

    def apply(self, primitive: Primitive) -> Outputs:
        """Apply a primitive, record it, and return the names it made."""
        raise NotImplementedError

    def names(self, primitive: Primitive) -> tuple[str, ...]:
        """Apply a primitive whose outputs are names."""
        return cast("tuple[str, ...]", self.apply(primitive))


class LoopMethods(Applies):
    """Primitives about loops."""

    def split(
        self,
        loop: str,
        factors: tuple[int | None, ...] | None = None,
        *,
        nparts: int | None = None,
        tail: str = "guard",
    ) -> tuple[str, ...]:
        """Split a loop by `factors` (outermost first, one may be None), or into `nparts` parts."""
        if (factors is None) == (nparts is None):
            raise TypeError("split takes either factors or nparts")
        return self.names(Split(loop, factors if factors is not None else (nparts, None), tail))

    def fuse(self, *loops: str) -> str:
        """Join directly nested loops; returns the new loop."""
        return self.names(Fuse(loops))[0]

    def reorder(self, *loops: str) -> None:
        """Put nested loops in this order."""
        self.apply(Reorder(loops))

    def tile(self, loops: tuple[str, ...], sizes: tuple[int, ...], *, tail: str = "guard") -> tuple[str, ...]:
        """Cut nested loops into tiles; returns the outer loops, then the inner ones."""
        return self.names(Tile(loops, sizes, tail))

    def parallel(self, loop: str) -> None:
        """Run the iterations of a loop on several threads."""
        self.apply(Parallel(loop))

    def vectorize(self, loop: str) -> None:
        """Run the iterations of an innermost loop in the lanes of a vector."""
        self.apply(Vectorize(loop))

    def unroll(self, loop: str) -> None:
        """Write out the iterations of a loop."""
        self.apply(Unroll(loop))

    def bind(self, loop: str, tag: str) -> None:
        """Give the iterations of a loop to an axis of the hardware or to virtual threads."""
        self.apply(Bind(loop, tag))

    def annotate(self, target: str, key: str, value: Value) -> None:
        """Put a note on a loop or block."""
        self.apply(Annotate(target, key, value))

    def unannotate(self, target: str, key: str) -> None:
        """Take a note off a loop or block."""
        self.apply(Unannotate(target, key))


class BlockMethods(Applies):
    """Primitives about blocks: inlining and reductions."""

    def compute_inline(self, block: str) -> None:
        """Put a block into all blocks that read its result."""
        self.apply(ComputeInline(block))

    def reverse_compute_inline(self, block: str) -> None:
        """Put a block into the producer of what it reads."""
        self.apply(ReverseComputeInline(block))

    def decompose_reduction(self, block: str, loop: str) -> str:
        """Start a reduction in a block of its own before `loop`; returns that block."""
        return self.names(DecomposeReduction(block, loop))[0]

    def rfactor(self, block: str, loop: str, axis: int = 0) -> tuple[str, str]:
        """Make a reduce loop spatial; returns the block of partial results and their buffer."""
        made, buffer = self.names(RFactor(block, loop, axis))
        return made, buffer


class SamplingMethods(Applies):
    """Steps that pick values; without a decision they draw from the source of the Schedule."""

    def sample_tile(
        self,
        loop: str,
        parts: int,
        *,
        largest: int = 64,
        dividing: bool = True,
        decision: tuple[int, ...] | None = None,
    ) -> tuple[int, ...]:
        """Pick factors for a split of `loop`, outermost first."""
        return cast(
            "tuple[int, ...]", self.apply(SampleTile(loop, parts, largest, dividing, decision=decision))
        )

    def sample_categorical(
        self,
        candidates: tuple[int | str, ...],
        weights: tuple[float, ...] = (),
        *,
        decision: int | None = None,
    ) -> int | str:
        """Pick one of the candidates; the decision is its number."""
        return self.apply(SampleCategorical(candidates, weights, decision=decision))[0]

    def sample_compute_location(self, block: str, *, decision: str | None = None) -> str:
        """Pick a loop under which compute_at accepts a block."""
        return self.names(SampleComputeLocation(block, decision=decision))[0]
