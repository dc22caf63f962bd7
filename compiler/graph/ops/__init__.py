"""All op records: `OPS` by our name, `find_op` by ONNX's domain and name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from compiler.graph.op import Op
from compiler.graph.ops import (
    append,
    bits,
    boxes,
    casting,
    conditional,
    counted,
    determinant,
    einsum,
    elementwise,
    forest,
    grids,
    images,
    indexing,
    learned,
    linear,
    lp,
    movement,
    ngrams,
    norm,
    one_hot,
    pooling,
    quantised,
    random,
    recurrent,
    reduction,
    regions,
    repeating,
    resize,
    sampling,
    scan,
    scatter,
    signal,
    sort,
    source,
    transposed,
    tree_ensemble,
    trees,
    unpooling,
)

FAMILIES: Mapping[str, tuple[Op, ...]] = MappingProxyType(
    {
        "elementwise": elementwise.OPS,
        "conditional": conditional.OPS,
        "casting": casting.OPS,
        "bits": bits.OPS,
        "movement": movement.OPS,
        "indexing": indexing.OPS,
        "append": append.OPS,
        "scatter": scatter.OPS,
        "scan": scan.OPS,
        "sort": sort.OPS,
        "one_hot": one_hot.OPS,
        "einsum": einsum.OPS,
        "counted": counted.OPS,
        "boxes": boxes.OPS,
        "ngrams": ngrams.OPS,
        "repeating": repeating.OPS,
        "resize": resize.OPS,
        "reduction": reduction.OPS,
        "pooling": pooling.OPS,
        "lp": lp.OPS,
        "norm": norm.OPS,
        "linear": linear.OPS,
        "quantised": quantised.OPS,
        "recurrent": recurrent.OPS,
        "transposed": transposed.OPS,
        "sampling": sampling.OPS,
        "grids": grids.OPS,
        "regions": regions.OPS,
        "images": images.OPS,
        "unpooling": unpooling.OPS,
        "determinant": determinant.OPS,
        "signal": signal.OPS,
        "source": source.OPS,
        "learned": learned.OPS,
        "forest": forest.OPS,
        "trees": trees.OPS,
        "tree_ensemble": tree_ensemble.OPS,
        "random": random.OPS,
    }
)

OPS: Mapping[str, Op] = MappingProxyType({op.name: op for family in FAMILIES.values() for op in family})

_ONNX = {(op.domain, op.name): op for op in OPS.values() if op.signatures}


_more: ContextVar[Mapping[tuple[str, str], Op]] = ContextVar("_more", default=MappingProxyType({}))


@contextmanager
def knowing(operators: Sequence[Op]) -> Iterator[None]:
    """Find these records, too: those of plugins, while a model is imported."""
    token = _more.set({(op.domain, op.name): op for op in operators})
    try:
        yield
    finally:
        _more.reset(token)


def find_op(domain: str, name: str) -> Op | None:
    """The record of an ONNX operator, or None; `ai.onnx` is the default domain."""
    key = ("" if domain == "ai.onnx" else domain, name)
    return _ONNX.get(key) or _more.get().get(key)


def onnx_names() -> tuple[tuple[str, str], ...]:
    """Domain and name of every ONNX operator that has a record."""
    return tuple(sorted({*_ONNX, *_more.get()}))
