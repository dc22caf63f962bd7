"""Graphs whose extents a run decides: one graph for all sizes, out of the same model at several.

Tensors lie in memory by their largest extents, and operators compute on these; what a run does not have of
them has no meaning. `symbolic.py` makes the graph, operator by operator: `restriction.py` shows which
operators keep what has no meaning away from what has, and which operands have to be masked for that;
`rescues.py` has other operators for those that take a size for granted. `unfolded.py` computes again what
was folded to one thing for each size, and `separate.py` shows that a batch is so many samples.
"""

from compiler.graph.rewrites.sizes.fits import Point
from compiler.graph.rewrites.sizes.instances import FixedSizeError, UnevenExtentError, Witness
from compiler.graph.rewrites.sizes.separate import COUNTS, try_samples
from compiler.graph.rewrites.sizes.symbolic import for_all_sizes

__all__ = [
    "COUNTS",
    "FixedSizeError",
    "Point",
    "UnevenExtentError",
    "Witness",
    "for_all_sizes",
    "try_samples",
]
