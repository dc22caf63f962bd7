"""The form im2col: a convolution as a product of matrices, its pixels one axis over all lines of an image.

`columns` has for each pixel what its window reads. A search may have them made ahead, so that the product
reads its factor without gaps; else they are read from the image where they are used, which leaves the one
axis: rows of a register tile go on from line to line.
"""

from __future__ import annotations

from compiler.loops.annotations import stage_of
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import Binary, Const
from compiler.loops.layout import lanes_last
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser
from compiler.schedule.program import Program, Site
from compiler.schedule.rules.common import is_lane_of
from compiler.schedule.rules.options import decide
from compiler.schedule.schedule import Schedule

COLUMNS = "columns"
IN_PLACE, AHEAD = 0, 1
"""Decisions for the columns: read where they lie in the image, or all of them made first."""


def columns_of(program: Program) -> Site | None:
    """The block that makes the columns of a convolution in this form; None for other functions."""
    return next((site for site in program.sites.values() if stage_of(site.block) == COLUMNS), None)


def lay_out_columns(schedule: Schedule, chooser: Chooser) -> None:
    """Make lines of the image one axis also where results are written, and decide on the columns."""
    columns = columns_of(schedule.program)
    if columns is None:
        return
    (product,) = schedule.program.readers(columns.target)
    for reader in schedule.program.readers(product.target):
        extents = [extent_of(item.extent) for item in reader.spatial]
        if len(extents) > _FLAT:
            flat = IndexMap.identity(len(extents)).fuse(_FLAT - 1, extents[_FLAT - 1 :])
            schedule.transform_block_layout(reader.name, flat)
    if decide(chooser, "im2col.columns", IN_PLACE, (AHEAD,)) == IN_PLACE:
        schedule.compute_inline(columns.name)
        return
    channel = columns.spatial[1].var.name
    lanes = [
        load.indices[-1] for load in columns.loads if load.indices and is_lane_of(load.indices[-1], channel)
    ]
    if lanes and isinstance(lanes[0], Binary) and isinstance(lanes[0].b, Const):
        rank = len(columns.spatial)
        schedule.transform_layout(columns.target, lanes_last(rank, 1, int(lanes[0].b.value)))


_FLAT = 3
"""Axes of results whose pixels are one: image, channel, pixel."""
