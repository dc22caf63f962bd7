"""What a compile may leave out and still be right: for finding out which part of it is to blame."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.graph.rewrites import PASSES as REWRITES
from compiler.lower import OPTIONAL
from compiler.lower import PASSES as LOWERING

FUSE, FUSE_ATTENTION = "fuse", "fuse-attention"
FUSE_DEPTHWISE, FUSE_CHAINS = "fuse-depthwise", "fuse-chains"
BLOCK_LAYOUTS, IN_PLACE = "block-layouts", "in-place"
SCHEDULE_RULES, SHARE_MEMORY = "schedule-rules", "share-memory"

GRAPH_REWRITE, FUSION, LAYOUT_CHOICE = "graph rewrite", "fusion", "layout"
CONCATENATION, SCHEDULING, LOWERING_PASS, MEMORY_PLAN = (
    "in-place concatenation",
    "schedule",
    "lowering pass",
    "memory plan",
)
"""Kinds of passes, as they are shown."""

OPTIONAL_PASSES: dict[str, str] = {
    **{item.name: GRAPH_REWRITE for item in REWRITES if item.optional},
    FUSE: FUSION,
    FUSE_ATTENTION: FUSION,
    FUSE_DEPTHWISE: FUSION,
    FUSE_CHAINS: FUSION,
    BLOCK_LAYOUTS: LAYOUT_CHOICE,
    IN_PLACE: CONCATENATION,
    SCHEDULE_RULES: SCHEDULING,
    **{name: LOWERING_PASS for name, _ in LOWERING if name in OPTIONAL},
    SHARE_MEMORY: MEMORY_PLAN,
}
"""Each pass that `CompileOptions.without` may name, in the order in which they run, and its kind."""

_REQUIRED = {
    *(item.name for item in REWRITES if not item.optional),
    *(name for name, _ in LOWERING if name not in OPTIONAL),
}


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
