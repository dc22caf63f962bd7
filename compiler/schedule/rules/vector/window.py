"""The rule for windows over channels (local response normalisation).

The form keeps what its windows read in a row with a margin at both ends. With channels in blocks of one
vector, the row of a few pixels is put into scratch, channels side by side; every window is then a vector that
begins somewhere in the row:

    parallel (image, image row, ...)
      for group of pixels
        row = margin, values, margin                  in scratch
        for pixel: for block of channels: result = f(row[block ...], row[block + 1 ...], ...)
"""

from __future__ import annotations

import math

from compiler.core.target import TargetFacts
from compiler.loops.annotations import stage_of
from compiler.loops.index_map import IndexMap
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser
from compiler.schedule.rules.common import SMALL, fuse_all, stores_lanes, strip_mine
from compiler.schedule.rules.options import decide, takes_threads
from compiler.schedule.schedule import Schedule

WINDOW = "window"
"""The stage of blocks that fill the row."""

_PIXELS = 8
"""Pixels in a row buffer: enough for stores to be done before they are read, few enough for the first-level
cache."""

_SIZES = (1, 2, 4, 8, 16, 32)
"""Pixels in a row buffer that search may try."""


def window(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a window over channels; False when the function is none, or channels do not fill vectors."""
    fillers = [block.name for block in schedule.program.blocks.values() if stage_of(block) == WINDOW]
    if not fillers:
        return False
    row = schedule.site(fillers[0]).target
    last = [site.block for site in schedule.program.readers(row)]
    lanes = facts.lanes(schedule.func.buffer(row).dtype.bits)
    if len(last) != 1 or not stores_lanes(last[0], 1, lanes):
        return False
    _arrange(schedule, fillers, row, last[0].name, lanes, chooser)
    return True


def _arrange(s: Schedule, fillers: list[str], row: str, result: str, lanes: int, chooser: Chooser) -> None:
    extents = [extent_of(item.extent) for item in s.block(result).iters]
    rank = len(extents)
    channels_last = IndexMap.identity(rank).reordered([0, *range(2, rank), 1])
    s.transform_layout(row, channels_last)
    strip_mine(s, result, 1, lanes)
    n, blocks, *around, lane = s.loops(result)
    guess = min(_PIXELS, extents[-1])
    size = decide(chooser, "window.pixels", guess, [n for n in _SIZES if n <= extents[-1]])
    pixels, pixel = s.split(around[-1], (None, size))
    s.reorder(n, *around[:-1], pixels, pixel, blocks, lane)
    for name in fillers:
        whole = extent_of(s.block(name).iters[1].extent) % lanes == 0
        vectors = channels_last.split(rank - 1, lanes) if whole else channels_last
        s.transform_block_layout(name, vectors)
        own = s.compute_at(name, pixels)
        if own:  # else a margin of one channel beside a single pixel
            (s.vectorize if whole else s.unroll)(own[-1])
    s.vectorize(lane)
    if takes_threads(chooser, result, guess=math.prod(extents) >= SMALL):
        s.parallel(fuse_all(s, [n, *around[:-1]]))
