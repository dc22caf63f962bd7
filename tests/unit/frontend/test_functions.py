"""Models that are larger than they look: refused with a message before anything is inlined."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import BadInputError
from compiler.frontend import functions
from compiler.frontend.functions import check_size, inlined
from tests.support.command import Result, environment

Tk = Callable[..., Result]
MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], timeout=60)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""
"""Runs a command from a small process: what it takes counts the memory of the one that it was forked from."""
IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]


def called(number: int, source: str, result: str) -> onnx.NodeProto:
    return helper.make_node(f"f{number}", [source], [result], domain="d")


def function(number: int, nodes: Sequence[onnx.NodeProto], result: str) -> onnx.FunctionProto:
    return helper.make_function("d", f"f{number}", ["a"], [result], nodes, IMPORTS)


def model(
    made: Sequence[onnx.FunctionProto], nodes: Sequence[onnx.NodeProto] | None = None
) -> onnx.ModelProto:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in ("x", "y")]
    nodes = nodes or [called(len(made) - 1, "x", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    return helper.make_model(graph, functions=made, opset_imports=IMPORTS, ir_version=8)


def doubling(times: int, first: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
    """Each function calls the one before it twice; the first does something."""
    made = [function(0, first or [helper.make_node("Relu", ["a"], ["b"])], "b")]
    made += [
        function(n, [called(n - 1, "a", "t"), called(n - 1, "t", "b")], "b") for n in range(1, times + 1)
    ]
    return model(made)


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(BadInputError) as caught:
        check_size(proto, "m.onnx")
    assert int(caught.value.code) == 3
    return caught.value.why


@pytest.mark.parametrize("command", ["compile", "inspect"])
def test_a_function_that_doubles_itself_thirty_times(tmp_path: Path, command: str) -> None:
    onnx.save(doubling(30), tmp_path / "m.onnx")
    argv = [sys.executable, "-m", "toolchain", command, str(tmp_path / "m.onnx")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *argv],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: the model is too large\nwhere: ")
    assert (
        "with its functions inlined it has 1,073,741,824 nodes, and 62 without that; at most 70,000"
        in done.stderr
    )
    assert int(done.stdout) < 1 << 20  # kilobytes, and nothing else


def test_verify_refuses_it_too(tk: Tk, tmp_path: Path) -> None:
    onnx.save(doubling(0), tmp_path / "m.onnx")
    assert tk("compile", "m.onnx").code == 0
    onnx.save(doubling(30), tmp_path / "m.onnx")
    result = tk("verify", "m.so", "--model", "m.onnx", timeout=60)
    assert (result.code, "1,073,741,824 nodes" in result.err) == (3, True), result.err


def test_what_is_counted_is_what_inlining_makes() -> None:
    branch = helper.make_graph([called(1, "a", "c"), helper.make_node("Relu", ["c"], ["d"])], "b", [], [])
    made = list(doubling(2).functions)
    made.append(
        function(3, [called(2, "a", "b"), helper.make_node("If", ["b"], ["e"], then_branch=branch)], "e")
    )
    found = inlined(model(made), "m.onnx")
    nodes = [*found.graph.node, *next(n for n in found.graph.node if n.op_type == "If").attribute[0].g.node]
    check = functions._counted(model(made).graph.node, sizes(made))
    assert (check.nodes, check.values) == (len(nodes), sum(len(one.output) for one in nodes))
    assert check.depth == 4


def sizes(made: Sequence[onnx.FunctionProto]) -> dict[tuple[str, str, str], functions._Size]:
    return functions._function_sizes({(one.domain, one.name, one.overload): one for one in made}, "m.onnx")


def test_numbers_that_nobody_reads_are_short() -> None:
    made = [function(0, [helper.make_node("Relu", ["a"], ["b"])], "b")]
    made += [function(n, [called(n - 1, "a", f"t{k}") for k in range(50)], "t0") for n in range(1, 60)]
    assert "about 10^100 nodes" in refusal(model(made))


def test_outputs_of_nodes_are_counted() -> None:
    many = helper.make_node("Split", ["a"], ["b", *(f"s{n}" for n in range(1000))])
    assert "1,025,024 outputs of nodes" in refusal(doubling(10, [many]))


def test_bytes_are_counted() -> None:
    constant = helper.make_node(
        "Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(1 << 20, np.float32))
    )
    add = helper.make_node("Add", ["a", "c"], ["b"])
    assert "bytes of nodes; at most 2,147,483,648" in refusal(doubling(10, [constant, add]))


def test_depth_is_limited() -> None:
    made = [function(0, [helper.make_node("Relu", ["a"], ["b"])], "b")]
    made += [function(n, [called(n - 1, "a", "b")], "b") for n in range(1, 1000)]
    assert "1,000 levels of functions that call functions; at most 100" in refusal(model(made))


def test_functions_inputs_and_outputs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = doubling(3)
    for name, what in (
        ("MOST_FUNCTIONS", "4 functions"),
        ("MOST_ENDS", "1 inputs"),
        ("MOST_NODES", "1 nodes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(functions, name, 0)
            assert what in refusal(proto)
    del proto.graph.input[:]
    monkeypatch.setattr(functions, "MOST_ENDS", 0)
    assert "1 outputs" in refusal(proto)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_function_that_calls_itself(length: int) -> None:
    made = [function(n, [called((n + 1) % length, "a", "b")], "b") for n in range(length)]
    with pytest.raises(BadInputError, match="calls itself"):
        check_size(model(made), "m.onnx")


def test_functions_that_nobody_calls_do_not_count() -> None:
    check_size(model(doubling(30).functions, [helper.make_node("Relu", ["x"], ["y"])]), "m.onnx")
