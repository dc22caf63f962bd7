"""What a compile may leave out and still be right: to find out which part is to blame, or is worth what."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from compiler.core.capabilities import LAST_BLOCK
from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.graph.rewrites import PASSES as REWRITES
from compiler.lower import OPTIONAL
from compiler.lower import PASSES as LOWERING
from compiler.targets.target import Target

FUSE, FUSE_ATTENTION, FUSE_SCORES = "fuse", "fuse-attention", "fuse-scores"
FUSE_DEPTHWISE, FUSE_ELEMENTWISE, FUSE_CHAINS = "fuse-depthwise", "fuse-elementwise", "fuse-chains"
BLOCK_LAYOUTS, IN_PLACE = "block-layouts", "in-place"
SCHEDULE_RULES, SHARE_MEMORY = "schedule-rules", "share-memory"
CLUSTERS, LAST_BLOCKS, FUSED_WINOGRAD = "clusters", "last-blocks", "fused-winograd"
PARALLEL_BRANCHES = "parallel-branches"

GRAPH_REWRITE, FUSION, LAYOUT_CHOICE = "graph rewrite", "fusion", "layout"
CONCATENATION, SCHEDULING, LOWERING_PASS, MEMORY_PLAN, RECORDING = (
    "in-place concatenation",
    "schedule",
    "lowering pass",
    "memory plan",
    "recording",
)
"""Kinds of passes, as they are shown."""

OPTIONAL_PASSES: dict[str, str] = {
    **{item.name: GRAPH_REWRITE for item in REWRITES if item.optional},
    FUSE: FUSION,
    FUSE_ATTENTION: FUSION,
    FUSE_SCORES: FUSION,
    FUSE_DEPTHWISE: FUSION,
    FUSE_ELEMENTWISE: FUSION,
    FUSE_CHAINS: FUSION,
    BLOCK_LAYOUTS: LAYOUT_CHOICE,
    IN_PLACE: CONCATENATION,
    FUSED_WINOGRAD: SCHEDULING,
    CLUSTERS: SCHEDULING,
    LAST_BLOCKS: SCHEDULING,
    SCHEDULE_RULES: SCHEDULING,
    **{name: LOWERING_PASS for name, _ in LOWERING if name in OPTIONAL},
    SHARE_MEMORY: MEMORY_PLAN,
    PARALLEL_BRANCHES: RECORDING,
}
"""Each pass that `CompileOptions.without` may name, in the order in which they run, and its kind."""


def without_rules(target: Target, left_out: Container[str]) -> Target:
    """A target that has nothing for rules that are left out and go by what a target has."""
    facts = target.facts
    if CLUSTERS in left_out:
        facts = replace(facts, limits=(*facts.limits, ("blocks_per_cluster", 1)))
    if LAST_BLOCKS in left_out:
        facts = replace(facts, intrinsics=facts.intrinsics - {LAST_BLOCK})
    return replace(target, facts=facts)


_REQUIRED = {
    *(item.name for item in REWRITES if not item.optional),
    *(name for name, _ in LOWERING if name not in OPTIONAL),
}


def check_limits(limits: Mapping[str, int], where: str) -> None:
    """As `check_optional`; UsageError also for a number of what is left out as a whole or not at all."""
    check_optional(limits, where)
    for name in (CLUSTERS, LAST_BLOCKS):
        if limits.get(name):
            raise UsageError(
                f"`{name}` has no limit but 0",
                where=where,
                why="a target has it or not, nobody counts where it is applied",
            )


def check_optional(names: Iterable[str], where: str) -> None:
    """Raise UsageError for a name of no pass, or of one that no program can do without."""
    for name in names:
        if name in _REQUIRED:
            raise UsageError(
                f"pass `{name}` cannot be left out",
                where=where,
                why="no program can do without it",
                hint=f"those that can be: {', '.join(OPTIONAL_PASSES)}",
            )
        if name not in OPTIONAL_PASSES:
            raise UsageError(
                f"unknown pass `{name}`",
                where=where,
                hint=did_you_mean(name, OPTIONAL_PASSES) or f"passes: {', '.join(OPTIONAL_PASSES)}",
            )
