"""Scheduled loops -> flat loops that can be printed, as one list of passes; each keeps the meaning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from compiler.core.passes import Pass
from compiler.core.plugins import LoweringPass
from compiler.core.target import TargetFacts
from compiler.loops.ir import Func
from compiler.loops.simplify import simplify_stmt
from compiler.loops.verify import Stage
from compiler.loops.walk import with_body
from compiler.lower.accumulate import accumulate_in_vectors
from compiler.lower.assign_registers import assign_registers
from compiler.lower.async_copies import async_copies
from compiler.lower.compact_buffers import compact_buffers
from compiler.lower.constants_first import constants_first
from compiler.lower.flatten_buffers import flatten_buffers
from compiler.lower.grid_ends import grid_ends
from compiler.lower.hoist_guards import hoist_guards
from compiler.lower.in_place import leave_in_place
from compiler.lower.insert_prefetch import insert_prefetch
from compiler.lower.last_block import gather_reads
from compiler.lower.limit_loops import limit_loops, shorten_loops
from compiler.lower.limit_unrolling import limit_unrolling
from compiler.lower.loop_kinds import settle_loop_kinds
from compiler.lower.lower_blocks import lower_blocks
from compiler.lower.merge_threads import merge_threads
from compiler.lower.order_unrolled import order_unrolled
from compiler.lower.over_samples import over_samples
from compiler.lower.partition_loops import partition_loops
from compiler.lower.place_allocations import place_allocations
from compiler.lower.place_shared import place_shared
from compiler.lower.recombine_digits import recombine_digits
from compiler.lower.reduce_subgroups import reduce_subgroups
from compiler.lower.share_tiles import share_tiles
from compiler.lower.split_fused import split_fused
from compiler.lower.storage_rewrite import storage_rewrite
from compiler.lower.tile_strides import tile_strides
from compiler.lower.transpose_vectors import transpose_vectors
from compiler.lower.vector_buffers import retype_vector_buffers
from compiler.lower.vectorize import vectorize
from compiler.lower.verify_launch import verify_launch

__all__ = ["LEADS_TO", "OPTIONAL", "PASSES", "lowering"]


def _simplify(func: Func) -> Func:
    """Simplify all expressions; drop what never runs."""
    return with_body(func, simplify_stmt(func.body, drop_unit_loops=True))


PASSES: tuple[tuple[str, Callable[[Func, TargetFacts], Func]], ...] = (
    ("place_allocations", lambda func, facts: place_allocations(func, launches=facts.launches)),
    ("reduce_subgroups", reduce_subgroups),
    ("merge_threads", merge_threads),
    ("async_copies", async_copies),
    ("leave_in_place", lambda func, _: leave_in_place(func)),
    ("limit_loops", lambda func, facts: grid_ends(func, facts) if facts.launches else limit_loops(func)),
    ("lower_blocks", lambda func, _: lower_blocks(func)),
    ("split_fused", split_fused),
    ("settle_loop_kinds", lambda func, _: settle_loop_kinds(func)),
    ("compact_buffers", lambda func, _: compact_buffers(func)),
    ("place_shared", lambda func, _: place_shared(func)),
    ("flatten_buffers", lambda func, _: flatten_buffers(func)),
    ("tile_strides", lambda func, _: tile_strides(func)),
    ("recombine_digits", recombine_digits),
    ("gather_reads", lambda func, _: gather_reads(func)),
    ("partition_loops", partition_loops),
    ("limit_unrolling", lambda func, _: limit_unrolling(func)),
    ("vectorize", vectorize),
    ("accumulate_in_vectors", lambda func, _: accumulate_in_vectors(func)),
    ("retype_vector_buffers", lambda func, _: retype_vector_buffers(func)),
    ("assign_registers", assign_registers),
    ("transpose_vectors", transpose_vectors),
    ("storage_rewrite", storage_rewrite),
    ("share_tiles", lambda func, _: share_tiles(func)),
    ("constants_first", constants_first),
    ("order_unrolled", lambda func, _: order_unrolled(func)),
    ("hoist_guards", hoist_guards),
    ("insert_prefetch", insert_prefetch),
    ("shorten_loops", lambda func, _: shorten_loops(func)),
    ("over_samples", lambda func, facts: over_samples(func, launches=facts.launches)),
    ("simplify", lambda func, _: _simplify(func)),
    ("verify_launch", verify_launch),
)
"""Every pass of the lowering, in order."""


def _leads_to() -> dict[str, Stage]:
    first: dict[str, Stage] = {
        "lower_blocks": "lowered",
        "assign_registers": "flat",
    }
    stages: dict[str, Stage] = {}
    current: Stage = "scheduled"
    for name, _ in PASSES:
        current = stages[name] = first.get(name, current)
    return stages


LEADS_TO: Mapping[str, Stage] = _leads_to()
"""What the program is after each pass, for the verifier."""


OPTIONAL = frozenset(
    {
        "limit_loops",
        "shorten_loops",
        "split_fused",
        "recombine_digits",
        "gather_reads",
        "partition_loops",
        "limit_unrolling",
        "vectorize",
        "accumulate_in_vectors",
        "retype_vector_buffers",
        "transpose_vectors",
        "storage_rewrite",
        "share_tiles",
        "constants_first",
        "order_unrolled",
        "hoist_guards",
        "insert_prefetch",
        "simplify",
        "verify_launch",
    }
)
"""Passes that a right program does without."""


def lowering(
    target: TargetFacts, without: Collection[str] = (), custom: Sequence[LoweringPass] = ()
) -> tuple[Pass[Func], ...]:
    """The passes for one target, for `run_passes`, but those named in `without`.

    Each of `custom`, those of plugins, follows the pass that it names, or the place where that would be.
    """

    def bound(run: Callable[[Func, TargetFacts], Func]) -> Callable[[Func], Func]:
        return lambda func: run(func, target)

    found = []
    for name, run in PASSES:
        if name not in without:
            found.append(Pass(name, bound(run), name in OPTIONAL))
        found += [Pass(item.name, bound(item.run)) for item in custom if item.after == name]
    return tuple(found)
