"""A pass of one's own: serial loops of two to four iterations are unrolled."""

from __future__ import annotations

from compiler.plugin import (
    Const,
    For,
    ForKind,
    Func,
    IRNode,
    LoweringPass,
    Plugin,
    TargetFacts,
    rewrite_nodes,
)


def unroll_short(func: Func, facts: TargetFacts) -> Func:
    """The function with its short loops unrolled; the same one where it has none."""

    def unrolled(item: IRNode) -> IRNode | None:
        if not isinstance(item, For) or item.kind is not ForKind.SERIAL:
            return None
        is_short = isinstance(item.extent, Const) and 2 <= item.extent.value <= 4
        return item.replace(kind=ForKind.UNROLLED) if is_short else None

    return func.replace(body=rewrite_nodes(func.body, unrolled))


PLUGIN = Plugin(passes=(LoweringPass("unroll_short", unroll_short, after="settle_loop_kinds"),))
