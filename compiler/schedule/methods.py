"""The typed methods of `Schedule`: each makes one primitive and applies it.

Mixins by family keep the files small. `PlacementMethods` has the primitives that move data and computation.
"""

from __future__ import annotations

from typing import cast

from compiler.schedule.primitives.base import Outputs, Primitive
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
