"""Op cases side by side in few models: a compile each, for devices whose programs take long to build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import onnx

from tests.support.onnx_models import run_onnxruntime, single
from tests.support.op_cases import Case

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Merged:
    """One model with the nodes of several cases; names of case N begin with `cN_`."""

    name: str
    cases: tuple[Case, ...]
    proto: onnx.ModelProto
    feeds: Arrays
    want: Arrays

    def case_of(self, output: str) -> Case:
        return self.cases[int(output[1:].partition("_")[0])]


def merged(cases: Sequence[Case], size: int) -> Iterator[tuple[str, tuple[Case, ...]]]:
    """The cases in groups of one opset and at most `size`, each with a name."""
    ordered = sorted(cases, key=lambda case: case.opset)
    for opset, group in groupby(ordered, key=lambda case: case.opset):
        items = tuple(group)
        for at in range(0, len(items), size):
            yield f"opset{opset}-{at}", items[at : at + size]


def merge(name: str, cases: Sequence[Case]) -> Merged:
    """One model of the cases, what it is given, and what onnxruntime makes of each case alone."""
    graph = onnx.GraphProto(name="merged")
    feeds: Arrays = {}
    want: Arrays = {}
    imports = None
    for number, case in enumerate(cases):
        proto, given = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
        prefix = f"c{number}_"
        feeds |= {prefix + key: value for key, value in given.items()}
        want |= {prefix + key: value for key, value in run_onnxruntime(proto, given).items()}
        imports = imports or proto
        _add(graph, proto.graph, prefix)
    assert imports is not None
    model = onnx.ModelProto()
    model.CopyFrom(imports)
    model.graph.CopyFrom(graph)
    return Merged(name, tuple(cases), model, feeds, want)


def _add(graph: onnx.GraphProto, more: onnx.GraphProto, prefix: str) -> None:
    for node in more.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.name = prefix + node.name
        for names in (copy.input, copy.output):
            renamed = [prefix + one if one else one for one in names]
            del names[:]
            names.extend(renamed)
    for kind in ("input", "output", "initializer", "value_info"):
        for item in getattr(more, kind):
            copy = getattr(graph, kind).add()
            copy.CopyFrom(item)
            copy.name = prefix + item.name
