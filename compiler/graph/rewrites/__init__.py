"""Graph rewrites: each a pure function `Graph -> Graph` in a file of its own, and their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from compiler.core.passes import Limits, Pass, PassEvent, run_passes
from compiler.core.types import DType
from compiler.graph.ir import Graph
from compiler.graph.rewrites.cancel_transposes import cancel_transposes
from compiler.graph.rewrites.canonicalise import canonicalise
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.explicit_pads import explicit_pads
from compiler.graph.rewrites.fold_batchnorm import fold_batchnorm
from compiler.graph.rewrites.fold_constants import fold_constants
from compiler.graph.rewrites.hoist_pads import hoist_pads
from compiler.graph.rewrites.lower_precision import lower_precision
from compiler.graph.rewrites.merge_pads import merge_pads
from compiler.graph.rewrites.merge_products import merge_products
from compiler.graph.rewrites.move_slices import move_slices
from compiler.graph.rewrites.part_concats import part_concats
from compiler.graph.rewrites.recognise_norms import recognise_norms
from compiler.graph.rewrites.separate_outputs import separate_outputs
from compiler.graph.rewrites.share_common import share_common
from compiler.graph.rewrites.simplify_reshapes import simplify_reshapes
from compiler.graph.rewrites.sink_shuffles import sink_shuffles
from compiler.graph.rewrites.store_narrow_types import store_narrow_types

PASSES: tuple[Pass[Graph], ...] = (
    Pass("fold-constants", fold_constants),
    Pass("share-common", share_common, optional=True),
    Pass("recognise-norms", recognise_norms, optional=True),
    Pass("canonicalise", canonicalise),
    Pass("store-narrow-types", store_narrow_types),
    Pass("drop-dead", drop_dead),
    Pass("fold-batchnorm", fold_batchnorm, optional=True),
    Pass("move-slices", move_slices, optional=True),
    Pass("cancel-transposes", cancel_transposes, optional=True),
    Pass("simplify-reshapes", simplify_reshapes, optional=True),
    Pass("move-slices-again", move_slices, optional=True),
    Pass("cancel-transposes-again", cancel_transposes, optional=True),
    Pass("drop-dead-again", drop_dead, optional=True),
    Pass("share-common-again", share_common, optional=True),
    Pass("merge-products", merge_products, optional=True),
    Pass("move-slices-of-products", move_slices, optional=True),
    Pass("share-common-products", share_common, optional=True),
    Pass("drop-dead-products", drop_dead, optional=True),
    Pass("sink-shuffles", sink_shuffles, optional=True),
    Pass("drop-dead-shuffles", drop_dead, optional=True),
    Pass("explicit-pads", explicit_pads, optional=True),
    Pass("drop-dead-pads", drop_dead, optional=True),
    Pass("merge-pads", merge_pads, optional=True),
    Pass("hoist-pads", hoist_pads, optional=True),
    Pass("drop-dead-concats", drop_dead, optional=True),
    Pass("merge-pads-again", merge_pads, optional=True),
    Pass("part-concats", part_concats, optional=True),
    Pass("separate-outputs", separate_outputs),
    Pass("drop-dead-last", drop_dead),
)
"""From the imported graph to the form that fusion reads."""

_CANONICAL = 1 + next(number for number, item in enumerate(PASSES) if item.name == "drop-dead")
"""Passes after which there are operators with forms only, each as the model says it."""


_ENDING = 2
"""The last passes, before which products are told to round their factors, where that was asked for."""

_FOR_CORES = frozenset({"explicit-pads", "merge-pads", "hoist-pads", "merge-pads-again"})
_FOR_BLOCKS = frozenset(
    {"merge-products", "move-slices-of-products", "share-common-products", "drop-dead-products"}
)


def rewrite_graph(
    graph: Graph,
    observers: Sequence[Callable[[PassEvent[Graph]], None]] = (),
    *,
    blocks: bool = False,
    without: Collection[str] = (),
    limits: Limits | None = None,
    factors: DType | None = None,
    images: bool = False,
) -> Graph:
    """Run all passes in order but those named in `without`; `limits` counts where they are applied.

    With `blocks` the graph is for kernels of blocks of threads: windows go on reaching outside of what they
    read, and products of one tensor are one launch. With `factors`, sums of products round theirs to
    that type, with `images` those of images, too.
    """
    left_out = {*without, *(_FOR_CORES if blocks else _FOR_BLOCKS)}
    passes = [item for item in PASSES if item.name not in left_out]
    if factors is not None:
        passes.insert(-_ENDING, Pass("lower-precision", lower_precision(factors, images=images)))
    return run_passes(passes, graph, observers, limits, "the graph")


def canonical(graph: Graph) -> Graph:
    """The graph in canonical form, before operators are moved."""
    return run_passes(PASSES[:_CANONICAL], graph)


__all__ = ["PASSES", "canonical", "rewrite_graph"]
