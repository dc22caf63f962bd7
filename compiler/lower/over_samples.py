"""The loop over the samples of a free batch, whose extent is an argument of the kernel.

A function with the attribute `samples` computes one sample. Here its parameters get all of them, and what it
does is done for each: where it is one parallel loop, threads share samples and their parts; else it is one
sample after the other. On devices nothing changes here: a launch has as many times its blocks as there are
samples, each set of which begins with the memory of its own (`render/device.py`).
"""

from __future__ import annotations

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import (
    SAMPLES,
    Broadcast,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Indexed,
    Let,
    Ramp,
    Region,
    Stmt,
    Var,
    binary,
)
from compiler.loops.names import fresh, names_in


def over_samples(func: Func, *, launches: bool = False) -> Func:
    """Flat loops for one sample -> flat loops for as many as the dimension says.

    launches: whether a device starts them.
    """
    largest, *steps = dict(func.attrs).get(SAMPLES, (0,))
    if not largest or launches:
        return func
    names = names_in(func.body)
    count, sample = Var(fresh("samples", names)), Var(fresh("sample", names))
    tensors = [item for item in func.params if item not in func.workspace]
    moved = {
        item: (item.replace(shape=(binary("mul", count, step),)), binary("mul", sample, step))
        for item, step in zip(tensors, steps, strict=True)
        if step
    }

    def step(item: IRNode) -> IRNode | None:
        if isinstance(item, Indexed) and item.buffer in moved:
            buffer, start = moved[item.buffer]
            return item.replace(buffer=buffer, indices=(_from(start, item.indices[0]),))
        if isinstance(item, Region) and item.buffer in moved:
            buffer, start = moved[item.buffer]
            return item.replace(buffer=buffer, begin=(_from(start, item.begin[0]),))
        return None

    body = _repeated(rewrite_nodes(func.body, step), count, sample, alone=not func.workspace)
    params = tuple(moved[item][0] if item in moved else item for item in func.params)
    return func.replace(params=params, body=body, dims=(Dim(count, 1, largest), *func.dims))


def _from(start: Expr, index: Expr) -> Expr:
    """An index, or those of a vector, counted from a start."""
    if isinstance(index, Ramp):
        return Ramp(start + index.base, index.stride, index.lanes)
    lanes = index.dtype.lanes
    return start + index if lanes == 1 else binary("add", Broadcast(start, lanes), index)


def _repeated(body: Stmt, count: Var, sample: Var, *, alone: bool) -> Stmt:
    """alone: nothing but its results passes from one iteration of a parallel loop to another."""
    if not (alone and isinstance(body, For) and body.kind is ForKind.PARALLEL):
        return For(sample, count, body)
    both = Var(fresh("sample_part", names_in(body)))
    inside = Let(sample, both // body.extent, Let(body.var, both % body.extent, body.body))
    return body.replace(var=both, extent=binary("mul", count, body.extent), body=inside)
