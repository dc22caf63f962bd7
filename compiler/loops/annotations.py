"""Annotations of blocks that have a meaning to the compiler."""

from __future__ import annotations

from compiler.loops.ir import Block

CONSTANT_ONLY = "constant-only"
"""The block depends on constants alone: its result is computed at compile time."""

STAGE = "stage"
"""The block is a stage of a form with several, called by the value; its result is kept, not computed again
in every reader."""


def is_constant_only(block: Block) -> bool:
    """Whether a block is computed at compile time."""
    return (CONSTANT_ONLY, True) in block.annotations


def stage_of(block: Block) -> str | None:
    """The stage that a block is, if any."""
    found = dict(block.annotations).get(STAGE)
    return found if isinstance(found, str) else None


ASYNC = "async"
"""On a block that fills shared memory: by asynchronous copies, of which so many rounds stay under way behind
a barrier, where the target has them."""

APART = "apart"
"""On an unrolled loop: no iteration keeps values in registers for another one, each loads what it needs."""

PARTITION = "partition"
"""On a loop: conditions are taken out of it by cutting it into pieces, however large its body is."""

PREFETCH = "prefetch"
"""On a loop: while one of its iterations runs, what the next one reads of the buffer named by the value is
asked for."""

AHEAD = "ahead"
"""On a loop with PREFETCH: so many iterations later what is asked for is read; 1 where it is left out."""

ENDS = "ends"
"""On a loop bound to `blockIdx`: rows of (times, step, offset, divisor, a factor for each symbol). A run
needs as many iterations as `times` the end that a row says, by `step`, rounded up."""

THREADS = "threads"
"""On a loop bound to `blockIdx`: a block of so many threads runs as many of its iterations, one each."""

LANES = "lanes"
"""On a loop of so many iterations that reduces: the lanes of a sub-group take one each, and combine theirs by
shuffles. Or on the loop around it: each of its iterations is such a reduction, by a sub-group of its own."""
