"""Functions of groups that do the same are built once, and are what each group would get alone."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from compiler.frontend.onnx import import_proto
from compiler.graph.fuse import fuse
from compiler.graph.ir import Graph, Value
from compiler.graph.rewrites import rewrite_graph
from compiler.graph.to_loops import GroupForms
from compiler.loops.layout import Layout
from tests.support.group_functions import group_func
from tests.support.onnx_models import model, single
from tests.support.op_case import floats
from tests.support.op_cases_recurrent import layer


def recurrent() -> Graph:
    case = layer("LSTM", {"clip": 0.5}, [4])
    proto, _ = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
    return rewrite_graph(import_proto(proto, "", {}, {}))  # type: ignore[arg-type]


def products() -> Graph:
    """Three products with constants, and scalars that are added."""
    constants = {"w": floats(8, 8), "v": floats(8, 8, seed=1), "s": np.float32([2]), "t": np.float32([3])}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "s"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Add", ["c", "t"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["e"]),
        helper.make_node("Add", ["e", "s"], ["y"]),
    ]
    return rewrite_graph(import_proto(model(nodes, {"x": floats(4, 8)}, ["y"], constants), "", {}, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize("graph", [recurrent(), products()], ids=["recurrent", "products"])
def test_each_group_gets_what_it_would_get_alone(graph: Graph) -> None:
    fused = fuse(graph)
    forms = GroupForms(graph.constants, {})
    kinds = set()
    for group in fused.groups:
        (made,), alone = forms.of(group).values(), group_func(group, graph.constants)
        assert (made.func, made.values) == (alone.func, alone.values)
        assert dict(made.derived) == dict(alone.derived)
        kinds.add(id(made.func))
    assert len(kinds) < len(fused.groups)


def test_layouts_and_scalars_tell_groups_apart() -> None:
    graph = products()
    groups = fuse(graph).groups
    forms = GroupForms(graph.constants, {})
    first, second, third = (forms.of(group)[""].func for group in groups)
    assert first is third
    assert first != second
    layouts: dict[Value, Layout] = {groups[2].outputs[0]: Layout((), (4, 8), 8)}
    apart = GroupForms(graph.constants, layouts)
    assert apart.of(groups[0])[""].func is not apart.of(groups[2])[""].func
