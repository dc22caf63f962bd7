"""Schedule primitives, one class each; `PRIMITIVES` is the list of all of them by name."""

from __future__ import annotations

from compiler.schedule.primitives.base import Primitive
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
from compiler.schedule.primitives.split import Split

PRIMITIVES: dict[str, type[Primitive]] = {
    "split": Split,
    "fuse": Fuse,
    "reorder": Reorder,
    "tile": Tile,
    "parallel": Parallel,
    "vectorize": Vectorize,
    "unroll": Unroll,
    "bind": Bind,
    "annotate": Annotate,
    "unannotate": Unannotate,
}
"""Every primitive by the name that traces use."""
