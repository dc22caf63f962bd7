"""Inputs, outputs and symbols of a plan: what lies in memory, and how much of it a run has.

Symbols are numbered with a free batch first, then as the graph has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.diagnostics import InternalError
from compiler.graph.extents import symbol_of
from compiler.graph.ir import Extent, Graph, TensorType, Value
from compiler.render.host import PlanDim, PlanState, PlanSymbol, PlanTensor
from compiler.stages.states import StatePair


def plan_symbols(graph: Graph, room: int) -> tuple[PlanSymbol, ...]:
    """The dimensions that a run decides; there is room for so many samples of a free batch.

    Raises InternalError where no input says what one of them is.
    """
    own = {symbol_of(extent) for value in graph.operands for extent in graph.extents.get(value, ())}
    for number, symbol in enumerate(graph.symbols):
        if number not in own and not symbol.counted:
            raise InternalError(f"no dimension of an input is {symbol.name!r}")
    batch = [PlanSymbol(1, min(graph.batch.largest, room))] if graph.batch is not None else []
    return (*batch, *(PlanSymbol(item.minimum, item.maximum, item.step) for item in graph.symbols))


def input_names(graph: Graph) -> tuple[str, ...]:
    """What the model calls the inputs that a caller gives."""
    return graph.input_names[: len(graph.operands)]


def symbol_names(graph: Graph) -> tuple[str, ...]:
    """What the model calls the symbols of the plan."""
    batch = [graph.batch.name] if graph.batch is not None else []
    return (*batch, *(symbol.name for symbol in graph.symbols))


def plan_names(graph: Graph) -> tuple[str, ...]:
    """All names of a plan in their order: inputs, outputs and checks, symbols."""
    return (*input_names(graph), *graph.output_names, *symbol_names(graph))


def plan_inputs(graph: Graph) -> tuple[PlanTensor, ...]:
    """The inputs, sizes last."""
    given = zip(graph.operands, graph.input_types, strict=False)
    sizes = graph.inputs[len(graph.operands) :]
    return (*(_tensor(graph, *one) for one in given), *(_fixed(value.type) for value in sizes))


def plan_outputs(graph: Graph) -> tuple[PlanTensor, ...]:
    """The outputs, checks last."""
    return tuple(_tensor(graph, *one) for one in zip(graph.outputs, graph.output_types, strict=True))


def plan_states(graph: Graph, states: Sequence[StatePair]) -> tuple[PlanState, ...]:
    """Inputs that a run extends to outputs, by their numbers."""
    inputs, outputs = (
        {value: number for number, value in enumerate(part)} for part in (graph.inputs, graph.outputs)
    )
    return tuple(PlanState(inputs[item.past], outputs[item.present], item.axis) for item in states)


def _fixed(kind: TensorType) -> PlanTensor:
    return PlanTensor(kind.dtype, tuple(map(PlanDim, kind.shape)))


def _tensor(graph: Graph, value: Value, kind: TensorType) -> PlanTensor:
    extents: Sequence[Extent | None] = graph.extents.get(value, (None,) * kind.rank)
    dims = [_dim(graph, size, extent) for size, extent in zip(kind.shape, extents, strict=True)]
    if graph.batch is not None:
        dims[0] = PlanDim(-1, (1, *(0 for _ in graph.symbols)))
    return PlanTensor(kind.dtype, tuple(dims))


def _dim(graph: Graph, size: int, extent: Extent | None) -> PlanDim:
    if extent is None:
        return PlanDim(size)
    most = extent.of(
        [s.maximum if f > 0 else s.minimum for s, f in zip(graph.symbols, extent.factors, strict=True)]
    )
    if most > size:
        raise InternalError(f"{extent} is up to {most} of {size} elements")
    batch = (0,) if graph.batch is not None else ()
    return PlanDim(size, (*batch, *extent.factors), extent.offset, extent.divisor)
