"""If, Loop and Scan become nodes of the graph; onnxruntime says what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.frontend.onnx import import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, verify
from tests.support.onnx_models import assert_close, run_onnxruntime

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
YES, NO = np.asarray(True), np.asarray(False)
Feeds = Mapping[str, np.ndarray]


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def load(text: str, binds: Mapping[str, Any] | None = None, opset: int = 17) -> Graph:
    graph = import_proto(parsed(text, opset), Path(), {}, dict(binds or {}))
    verify(graph)
    return graph


def agrees(text: str, *feeds: Feeds, binds: Mapping[str, Any] | None = None, opset: int = 17) -> Graph:
    """Import a model, and compare what the graph computes with onnxruntime."""
    graph = load(text, binds, opset)
    for given in feeds:
        want = run_onnxruntime(parsed(text, opset), {**given, **(binds or {})})
        got = evaluate(graph, {name: given[name] for name in graph.input_names})
        for name, array in want.items():
            assert_close(got[name], array)
    return graph


def ops(graph: Graph) -> list[str]:
    return [item.op.name for item in graph.nodes]


def why_not(text: str, opset: int = 17) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        load(text, opset=opset)
    return caught.value.refusals[0].reason


# ---------------------------------------------------------------- If


BRANCHES = """
    y = If (c) <
        then_branch = yes () => (float[2, 3] a) { a = Relu (x) },
        else_branch = no () => (float[2, 3] b) { t = Neg (x) b = Exp (t) }>
"""


def test_a_condition_that_is_known_takes_its_branch() -> None:
    text = f"g (float[2, 3] x, bool c) => (y) {{ {BRANCHES} }}"
    assert ops(agrees(text, {"x": X}, binds={"c": YES})) == ["Relu"]
    assert ops(agrees(text, {"x": X}, binds={"c": NO})) == ["Neg", "Exp"]


def test_shapes_make_a_condition_known() -> None:
    text = f"""g (float[2, 3] x) => (y) {{
        s = Shape (x)  two = Constant <value = int64[2] {{2, 3}}> ()  same = Equal (s, two)
        n = Cast <to = 7> (same)  least = ReduceMin <keepdims = 0> (n)  c = Cast <to = 9> (least)
        {BRANCHES} }}"""
    assert "Relu" in ops(agrees(text, {"x": X}))


def test_data_decides_between_branches() -> None:
    graph = agrees(
        f"g (float[2, 3] x, bool c) => (y) {{ {BRANCHES} }}", {"x": X, "c": YES}, {"x": X, "c": NO}
    )
    assert {"Relu", "Neg", "Exp", "Where"} <= set(ops(graph))


def test_a_condition_may_have_a_dimension() -> None:
    agrees(f"g (float[2, 3] x, bool[1] c) => (y) {{ {BRANCHES} }}", {"x": X, "c": np.asarray([True])})


def test_branches_of_other_types_are_refused_where_data_decides() -> None:
    text = """g (float[2, 3] x, bool c) => (y) {
        y = If (c) <then_branch = yes () => (float[3, 2] a) { a = Transpose <perm = [1, 0]> (x) },
                    else_branch = no () => (float[2, 3] b) { b = Relu (x) }> }"""
    assert "f32[3,2] or a tensor f32[2,3] is known only when the model runs" in why_not(text)
    assert ops(agrees(text, {"x": X}, binds={"c": NO})) == ["Relu"]


def test_names_inside_hide_those_outside_and_end_with_the_graph() -> None:
    text = """g (float[2, 3] x, bool c, bool d) => (y, t) {
        t = Relu (x)
        y = If (c) <
            then_branch = yes () => (float[2, 3] a) {
                inner = Neg (x)
                a = If (d) <then_branch = in_yes () => (float[2, 3] p) { p = Add (inner, t) },
                            else_branch = in_no () => (float[2, 3] q) { q = Mul (inner, t) }> },
            else_branch = no () => (float[2, 3] b) { inner = Exp (t) b = Add (inner, x) }> }"""
    agrees(text, *({"x": X, "c": c, "d": d} for c in (YES, NO) for d in (YES, NO)))


def test_a_shadowing_name_is_the_inner_one() -> None:
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["t"]), onnx.helper.make_node("Relu", ["t"], ["a"])],
        "yes", [], [onnx.helper.make_tensor_value_info("a", 1, (2, 3))],
    )  # fmt: skip
    proto = parsed(
        "g (float[2, 3] x) => (y) { t = Exp (x) c = Constant <value = bool {1}> () y = Add (t, t) }"
    )
    proto.graph.node[2].CopyFrom(
        onnx.helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    )
    proto.graph.node.append(onnx.helper.make_node("Add", ["z", "t"], ["y"]))
    got = evaluate(import_proto(proto, Path(), {}, {}), {"x": X})["y"]
    assert_close(got, np.maximum(-X, 0) + np.exp(X))


def test_initializers_of_a_branch_are_constants_there() -> None:
    text = """g (float[2, 3] x, bool c) => (y) {
        y = If (c) <then_branch = yes () => (float[2, 3] a) <float[3] w = {1, 2, 3}> { a = Add (x, w) },
                    else_branch = no () => (float[2, 3] b) <float[3] w = {4, 5, 6}> { b = Mul (x, w) }> }"""
    agrees(text, {"x": X, "c": YES}, {"x": X, "c": NO})


# ---------------------------------------------------------------- Loop


def looped(inputs: str, head: str, call: str, body: str, outputs: str = "y") -> str:
    return f"g ({inputs}) => ({outputs}) {{ {head} {outputs} = Loop <body = round {body}> ({call}) }}"


FOUR = "n = Constant <value = int64 {4}> ()"
TRUE = "t = Constant <value = bool {1}> ()"
PLAIN = """(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b, float[2, 3] s) {
    go = Identity (on)  f = Cast <to = 1> (i)  b = Add (a, f)  s = Mul (b, b) }"""
WHILE = """(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b) {
    b = Add (a, a)  top = ReduceMax <keepdims = 0> (b)  most = Constant <value = float {3.0}> ()
    go = Less (top, most) }"""


def test_a_trip_count_that_is_known_is_unrolled() -> None:
    graph = agrees(looped("float[2, 3] x", FOUR, "n, , x", PLAIN, "y, ys"), {"x": X})
    assert ops(graph).count("Mul") == 4
    assert not {"Cast", "Where"} & set(ops(graph)), "what depends on the number of the round is folded"


@pytest.mark.parametrize("trips", [0, 1])
def test_no_round_or_one(trips: int) -> None:
    head = f"n = Constant <value = int64 {{{trips}}}> ()"
    agrees(looped("float[2, 3] x", head, "n, , x", PLAIN, "y, ys"), {"x": X})


def test_a_condition_that_is_false_from_the_start() -> None:
    text = looped("float[2, 3] x, bool c", FOUR, "n, c, x", PLAIN, "y, ys")
    graph = agrees(text, {"x": X}, binds={"c": NO})
    assert graph.outputs[1].type.shape == (0, 2, 3)


def test_a_condition_that_ends_by_counting() -> None:
    body = """(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b, float[2, 3] s) {
        two = Constant <value = int64 {2}> ()  go = Less (i, two)  b = Add (a, a)  s = Identity (b) }"""
    for trips, head in (("n", FOUR), ("", "")):
        graph = agrees(looped("float[2, 3] x", head + TRUE, f"{trips}, t, x", body, "y, ys"), {"x": X})
        assert ops(graph).count("Add") == 3


def test_a_condition_on_data_keeps_what_was_carried() -> None:
    """Some end after one round, some after none, some never."""
    text = looped("float[2, 3] x, bool c", FOUR, "n, c, x", WHILE)
    given = [{"x": scale * np.abs(X), "c": YES} for scale in np.float32([0.01, 0.3, 1, 4])]
    graph = agrees(text, *given, {"x": X, "c": NO})
    assert ops(graph).count("Where") == 4


def test_without_a_largest_trip_count_data_cannot_decide() -> None:
    text = looped("float[2, 3] x", TRUE, ", t, x", WHILE)
    assert "no largest trip count" in why_not(text)


def test_a_trip_count_that_is_not_known_is_refused() -> None:
    text = looped("float[2, 3] x, int64 n", "", "n, , x", PLAIN, "y, ys")
    assert "--bind" in why_not(text)
    agrees(text, {"x": X}, binds={"n": np.asarray(3)})


def test_how_much_is_collected_may_not_depend_on_data() -> None:
    text = looped("float[2, 3] x, bool c", FOUR, "n, c, x", PLAIN, "y, ys")
    assert "how many elements it collects" in why_not(text)


def declared(text: str, types: str) -> str:
    """A model of the same nodes that declares its outputs."""
    return text.replace("=> (y, ys)", f"=> ({types})", 1)


DOUBLED = """(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b, float[2, 3] s) {
    b = Add (a, a)  top = ReduceMax <keepdims = 0> (b)  most = Constant <value = float {3.0}> ()
    go = Less (top, most)  s = Neg (b) }"""


@pytest.mark.parametrize(
    ("inputs", "call", "body", "rounds", "feeds", "holds"),
    [
        ("int64 n", "n, , x", PLAIN, 4, {"n": np.asarray(4)}, True),
        ("int64 n", "n, , x", PLAIN, 4, {"n": np.asarray(5)}, False),
        ("int64 n", "n, , x", PLAIN, 4, {"n": np.asarray(3)}, False),
        ("int64 n", "n, , x", PLAIN, 0, {"n": np.asarray(-2)}, True),
        ("int64 n, bool c", "n, c, x", PLAIN, 4, {"n": np.asarray(4), "c": YES}, True),
        ("int64 n, bool c", "n, c, x", PLAIN, 4, {"n": np.asarray(4), "c": NO}, False),
        ("int64 n, bool c", "n, c, x", DOUBLED, 2, {"n": np.asarray(9), "c": YES}, True),
        ("int64 n, bool c", "n, c, x", DOUBLED, 2, {"n": np.asarray(2), "c": YES}, True),
        ("int64 n, bool c", "n, c, x", DOUBLED, 2, {"n": np.asarray(1), "c": YES}, False),
        ("int64 n, bool c", "n, c, x", DOUBLED, 1, {"n": np.asarray(9), "c": YES}, False),
        ("int64 n, bool c", "n, c, x", DOUBLED, 3, {"n": np.asarray(9), "c": YES}, False),
        ("bool c", ", c, x", DOUBLED, 2, {"c": YES}, True),
        ("bool c", ", c, x", DOUBLED, 3, {"c": YES}, False),
    ],
)
def test_a_declared_number_of_rounds_is_checked_in_a_run(
    inputs: str, call: str, body: str, rounds: int, feeds: Feeds, holds: bool
) -> None:
    text = looped(f"float[2, 3] x, {inputs}", "", call, body, "y, ys")
    graph = load(declared(text, f"float[2, 3] y, float[{rounds}, 2, 3] ys"))
    got = evaluate(graph, {"x": X, **feeds})
    assert graph.checks == 1
    assert bool(got[graph.output_names[-1]]) == holds
    assert f"the {rounds} rounds that the model declares" in graph.output_names[-1]
    want = run_onnxruntime(parsed(text), {"x": X, **feeds}) if holds else {}
    for name, array in want.items():
        assert_close(got[name], array)


def test_declared_rounds_that_cannot_be() -> None:
    text = looped("float[2, 3] x, bool c", FOUR, "n, c, x", PLAIN, "y, ys")
    with pytest.raises(BadInputError, match="not valid") as caught:
        load(declared(text, "float[2, 3] y, float[5, 2, 3] ys"))
    assert "declares 5 rounds" in caught.value.why


def test_a_check_counts_in_the_branch_that_is_taken_only() -> None:
    text = """g (float[2, 3] x, int64 n, bool c) => (y) {
        y = If (c) <
            then_branch = yes () => (float[2, 2, 3] ys) {
                t, ys = Loop <body = round (int64 i, bool on, float[2, 3] a)
                    => (bool go, float[2, 3] b, float[2, 3] s) {
                        go = Identity (on)  b = Add (a, a)  s = Neg (b) }> (n, , x) },
            else_branch = no () => (float[2, 2, 3] z) {
                two = Constant <value = int64[3] {2, 2, 3}> ()  z = Expand (x, two) }> }"""
    graph = load(text)
    for c, n, holds in ((YES, 2, True), (YES, 3, False), (NO, 3, True)):
        got = evaluate(graph, {"x": X, "n": np.asarray(n), "c": c})
        assert bool(got[graph.output_names[-1]]) == holds


def test_values_may_change_their_shape_from_round_to_round() -> None:
    body = """(int64 i, bool on, float[k] a) => (bool go, float[m] b) {
        go = Identity (on)  b = Concat <axis = 0> (a, x) }"""
    assert agrees(looped("float[2] x", FOUR, "n, , x", body), {"x": X[0, :2]}).outputs[0].type.shape == (10,)


def test_loops_in_loops_read_what_is_around_them() -> None:
    body = """(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b) {
        go = Identity (on)
        b = Loop <body = inner (int64 j, bool on2, float[2, 3] p) => (bool go2, float[2, 3] q) {
            go2 = Identity (on2)  ij = Mul (i, j)  f = Cast <to = 1> (ij)  r = Add (p, f)  q = Mul (r, x) }>
            (n, , a) }"""
    agrees(looped("float[2, 3] x", FOUR, "n, , x", body), {"x": X})


def test_what_is_unrolled_is_counted_before_it_is_made() -> None:
    head = "n = Constant <value = int64 {100000000000}> ()"
    for call in ("n, , x", "n, t, x"):
        text = looped("float[2, 3] x", head + TRUE, call, PLAIN, "y, ys")
        with pytest.raises(BadInputError) as caught:
            load(text)
        assert "with its loops unrolled it has 400,000,000,0" in caught.value.why
        assert "without that; at most 15,000 can be compiled" in caught.value.why


def test_the_more_nodes_the_more_rounds() -> None:
    body = "(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b) { go = Identity (on) %s }"
    steps = [f"a{at + 1} = Neg (a{at}) " for at in range(300)]
    few, many = (body % f"a0 = Neg (a) {''.join(steps[:count])} b = Neg (a{count})" for count in (0, 300))
    head = "n = Constant <value = int64 {30000}> ()"
    with pytest.raises(BadInputError, match="nodes, and 5 without that; at most 13,000"):
        load(looped("float[2, 3] x", head, "n, , x", few))
    with pytest.raises(BadInputError, match="nodes; at most 200,000"):
        load(looped("float[2, 3] x", head, "n, , x", many))


def test_a_loop_that_never_ends_is_refused() -> None:
    body = "(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b) { go = Identity (on) b = Neg (a) }"
    for call in (", , x", ", t, x"):
        assert "no largest trip count" in why_not(looped("float[2, 3] x", TRUE, call, body))


def test_a_node_that_is_refused_inside_is_reported_once() -> None:
    body = (
        "(int64 i, bool on, float[2, 3] a) => (bool go, float[2, 3] b) { go = Identity (on) b = Relux (a) }"
    )
    with pytest.raises(UnsupportedModelError) as caught:
        load(looped("float[2, 3] x", FOUR, "n, , x", body))
    assert [one.op for one in caught.value.refusals] == ["Relux"]


# ---------------------------------------------------------------- Scan


SUMS = """(float[3] a, float[3] e) => (float[3] b, float[3] s) { b = Add (a, e)  s = Mul (b, e) }"""
SEQUENCE = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)


def scanned(attributes: str, shape: str = "5, 3") -> str:
    return f"""g (float[3] h, float[{shape}] x) => (y, ys) {{
        y, ys = Scan <num_scan_inputs = 1, {attributes} body = step {SUMS}> (h, x) }}"""


@pytest.mark.parametrize(
    "attributes",
    ["", "scan_input_directions = [1],", "scan_output_directions = [1],", "scan_output_axes = [1],",
     "scan_output_axes = [-1], scan_output_directions = [1], scan_input_directions = [1],"],
)  # fmt: skip
def test_scan_in_all_directions(attributes: str) -> None:
    agrees(scanned(attributes), {"h": X[0], "x": SEQUENCE})


@pytest.mark.parametrize("axis", [1, -1])
def test_scan_along_another_axis(axis: int) -> None:
    agrees(scanned(f"scan_input_axes = [{axis}],", "3, 5"), {"h": X[0], "x": SEQUENCE.T.copy()})


def test_scan_of_nothing() -> None:
    cut = "{ z = Constant <value = int64[1] {0}> ()  x = Slice (x0, z, z) "
    graph = load(scanned("").replace("x) => (y", "x0) => (y").replace("{", cut, 1))
    assert graph.outputs[1].type.shape == (0, 3)


def test_scan_of_several_operands_without_a_state() -> None:
    text = """g (float[5, 3] x, float[5, 3] z) => (y) {
        y = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1],
                  body = step (float[3] a, float[3] b) => (float[3] s) { s = Sub (a, b) }> (x, z) }"""
    agrees(text, {"x": SEQUENCE, "z": 2 * SEQUENCE})


BATCHED = f"""g (float[2, 3] h, float[2, 5, 3] x, int64[2] n) => (y, ys) {{
    y, ys = Scan <num_scan_inputs = 1, directions = [0], body = step {SUMS}> (LENGTHS, h, x) }}"""


def test_scan_of_opset_8_has_a_batch() -> None:
    given = {"h": X, "x": np.stack([SEQUENCE, -SEQUENCE])}
    lengths = np.asarray([2, 5])
    agrees(BATCHED.replace("LENGTHS", ""), {**given, "n": lengths}, opset=8)
    agrees(BATCHED.replace("LENGTHS", "n"), given, binds={"n": lengths}, opset=8)
    assert "--bind" in why_not(BATCHED.replace("LENGTHS", "n"), opset=8)


def test_a_body_that_does_not_fit_is_no_valid_model() -> None:
    with pytest.raises(BadInputError, match="not valid"):
        load(scanned("").replace("num_scan_inputs = 1", "num_scan_inputs = 3"))
