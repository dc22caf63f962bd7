"""Schedule primitives, one class each; `PRIMITIVES` is the list of all of them by name."""

from __future__ import annotations

from compiler.schedule.primitives.base import Primitive
from compiler.schedule.primitives.cache import CacheInplace, CacheRead, CacheWrite
from compiler.schedule.primitives.inline import ComputeInline, ReverseComputeInline
from compiler.schedule.primitives.layout import TransformBlockLayout, TransformLayout
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
from compiler.schedule.primitives.operand import CacheOperand
from compiler.schedule.primitives.padding import DecomposePadding, PadEinsum
from compiler.schedule.primitives.pipeline import SoftwarePipeline, VThread
from compiler.schedule.primitives.placement import ComputeAt, ReverseComputeAt
from compiler.schedule.primitives.reduction import DecomposeReduction, RFactor
from compiler.schedule.primitives.sampling import SampleCategorical, SampleComputeLocation, SampleTile
from compiler.schedule.primitives.split import Split
from compiler.schedule.primitives.storage import SetScope, StorageAlign
from compiler.schedule.primitives.tensor import Blockize, Tensorize

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
    "compute_inline": ComputeInline,
    "reverse_compute_inline": ReverseComputeInline,
    "decompose_reduction": DecomposeReduction,
    "rfactor": RFactor,
    "sample_tile": SampleTile,
    "sample_categorical": SampleCategorical,
    "sample_compute_location": SampleComputeLocation,
    "compute_at": ComputeAt,
    "reverse_compute_at": ReverseComputeAt,
    "cache_read": CacheRead,
    "cache_write": CacheWrite,
    "cache_inplace": CacheInplace,
    "cache_operand": CacheOperand,
    "set_scope": SetScope,
    "storage_align": StorageAlign,
    "transform_layout": TransformLayout,
    "transform_block_layout": TransformBlockLayout,
    "decompose_padding": DecomposePadding,
    "pad_einsum": PadEinsum,
    "blockize": Blockize,
    "tensorize": Tensorize,
    "software_pipeline": SoftwarePipeline,
    "vthread": VThread,
}
"""Every primitive by the name that traces use."""
